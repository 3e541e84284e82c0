// How long a collective takes on a graph of machines: its schedules, simulated.
#pragma once

#include <cstddef>
#include <functional>

#include "algorithms/catalog.h"
#include "schedule/simulate.h"
#include "topology/graph.h"
#include "topology/routes.h"

namespace tutti::internal::topology {

struct Question {
  const algorithms::AlgorithmEntry* entry = nullptr;
  int root = 0;
  std::size_t bytes = 0;  // of the whole vector, all blocks together; rounded down to whole elements of whole blocks
  std::size_t element_bytes = 4;
  int cores_of_host = 0;  // that its ranks share; 0: each has one
  Slowed slowed;
  bool keeps_steps = false;                  // then all ranks are simulated
  std::size_t most_memory_bytes = SIZE_MAX;  // refuses what would take more
  std::function<Status()> interrupt;
};

struct Prediction {
  schedule::Timing timing;
  bool one_host = false;  // the first one has stood for all, which do the same at the same time
  std::size_t steps = 0;  // that were simulated
};

// REQUIRES: graph.check(), and it has ranks. kInvalidArgument where the algorithm does not serve them, or what it would
// take is not allowed.
Result<Prediction> predict(const Graph& graph, const MachineCosts& costs, const Question& question);

}  // namespace tutti::internal::topology
