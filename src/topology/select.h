// Which algorithm for which size: the cheapest of the catalog by its cost formula, on this world's links.
// Evaluated when a communicator first meets a size class, never per call. Every rank must come to the
// same answer, so only what all ranks know alike goes in.
#pragma once

#include <cstddef>
#include <string>

#include "algorithms/catalog.h"
#include "base/status.h"

namespace tutti::internal::topology {

// What the costs depend on, besides who shares a host.
struct Conditions {
  bool shared_memory = true;  // ranks of one host use it
  double ranks_per_cpu = 1;   // ranks per processor on the host that has most, at least 1
  bool threads = false;       // ranks are threads that read each other's memory in place
  bool rdma = false;          // ranks of different hosts use it
};

algorithms::LinkCosts link_costs(const Conditions& conditions);

// `forced`: TUTTI_ALGORITHM, a comma-separated list of NAME (where a collective has it) and
// COLLECTIVE:NAME. kInvalidUsage if that names what does not exist or does not serve this world.
// bytes: of the whole vector, all blocks together. Barriers are selected among the all-reduces.
Result<const algorithms::AlgorithmEntry*> select(Collective collective, const algorithms::World& world,
                                                 std::size_t bytes, const Conditions& conditions,
                                                 const std::string& forced);

}  // namespace tutti::internal::topology
