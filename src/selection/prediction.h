// Predicts the time of a collective on a graph of machines by simulating its schedules.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "algorithms/catalog.h"
#include "schedule/simulate.h"
#include "topology/graph.h"
#include "topology/routes.h"

namespace tutti::internal::selection {

struct Question {
  const algorithms::AlgorithmEntry* entry = nullptr;
  int root = 0;
  std::size_t bytes = 0;  // of the whole vector, all blocks together; rounded down to whole elements of whole blocks
  std::size_t element_bytes = 4;
  topology::Sharing sharing;
  int calls = 1;  // in a row
  topology::Slowed slowed;
  bool keeps_steps = false;                  // then all ranks are simulated
  std::size_t most_memory_bytes = SIZE_MAX;  // refuses a simulation that needs more
  std::function<Status()> interrupt;
};

struct Prediction {
  schedule::Timing timing;
  double us_of_call = 0;  // mean of the calls in a row
  bool one_host = false;  // only the first host was simulated, because all do the same at the same time
  std::size_t steps = 0;  // that were simulated
};

// The ranks of the graph, with their hosts and other groups (networks, packages, NUMA nodes), for algorithms. REQUIRES:
// graph.check().
algorithms::World world_of(const topology::Graph& graph);

// Of all ranks, in their order.
Result<std::vector<schedule::Schedule>> write_schedules(const algorithms::AlgorithmEntry& entry,
                                                        const algorithms::World& world, int root);
// The time of one call among `calls` in a row, with vectors of `bytes` bytes. The first calls are simulated; each later
// one takes as long as the last of these. Errors as simulate(), and kInvalidArgument if a rank has no element.
// `call_bytes`: as in SimulationOptions.
Result<double> simulate_calls(std::span<const schedule::Schedule> schedules, std::size_t bytes,
                              std::size_t element_bytes, int calls, const schedule::Interconnect& net,
                              double call_bytes = 0);

// REQUIRES: graph.check(), and it has ranks. kInvalidArgument if the algorithm does not support the ranks, or needs
// more memory than allowed.
Result<Prediction> predict(const topology::Graph& graph, const topology::MachineCosts& costs, const Question& question);

}  // namespace tutti::internal::selection
