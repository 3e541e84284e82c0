// The numbers of the cost model from what was measured: those with which simulated times come nearest to it.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "algorithms/catalog.h"
#include "selection/prediction.h"
#include "topology/graph.h"
#include "topology/routes.h"

namespace tutti::internal::selection {

struct Observation {
  const algorithms::AlgorithmEntry* entry = nullptr;
  std::size_t bytes = 0;  // of the whole vector, all blocks together, of 4-byte elements
  int calls = 1;          // that were timed in a row
  double us = 0;          // of one of them; above 0
};

// Where the observations were made.
struct ObservedJob {
  topology::Graph graph;
  topology::Sharing sharing;
};

struct FittedCosts {
  topology::MachineCosts costs;
  topology::Speed port;              // of the ports that lead to the network, where there are several hosts
  std::vector<double> predicted_us;  // of each observation
};

// Begins with `start`, and leaves alone what the job has no use for: of hosts with one rank what is within a host, and
// so on; and what is passed on at a time and what a lane takes, which the transport knows. Minimizes the mean of
// |log(predicted / measured)| over some of the observations by pattern search (Hooke, Jeeves: "Direct search" solution
// of numerical and statistical problems, J. ACM 8 (1961)); some seconds. Deterministic, unless `enough` ends it before:
// it is asked now and then.
Result<FittedCosts> fit_costs(const ObservedJob& job, std::span<const Observation> observations,
                              const topology::MachineCosts& start, const std::function<bool()>& enough = {});

}  // namespace tutti::internal::selection
