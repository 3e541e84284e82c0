// How long a collective takes on a graph of machines: its schedules, simulated.
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
  std::size_t most_memory_bytes = SIZE_MAX;  // refuses what would take more
  std::function<Status()> interrupt;
};

struct Prediction {
  schedule::Timing timing;
  double us_of_call = 0;  // of so many in a row, the mean
  bool one_host = false;  // the first one has stood for all, which do the same at the same time
  std::size_t steps = 0;  // that were simulated
};

// Ranks of the graph, their hosts and other groups, as algorithms see them: those of a network, of a package, of a NUMA
// node. REQUIRES: graph.check().
algorithms::World world_of(const topology::Graph& graph);

// Of all ranks, in their order.
Result<std::vector<schedule::Schedule>> write_schedules(const algorithms::AlgorithmEntry& entry,
                                                        const algorithms::World& world, int root);
// What one of so many calls in a row takes, of vectors of so many bytes: the first ones are simulated, of the rest each
// takes as long as the last one of these. Errors as simulate() has them, and kInvalidArgument where a rank has no
// element. `call_bytes`: as in SimulationOptions.
Result<double> simulate_calls(std::span<const schedule::Schedule> schedules, std::size_t bytes,
                              std::size_t element_bytes, int calls, const schedule::Interconnect& net,
                              double call_bytes = 0);

// REQUIRES: graph.check(), and it has ranks. kInvalidArgument where the algorithm does not serve them, or what it would
// take is not allowed.
Result<Prediction> predict(const topology::Graph& graph, const topology::MachineCosts& costs, const Question& question);

}  // namespace tutti::internal::selection
