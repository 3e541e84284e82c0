// Fits the numbers of the cost model to measurements: minimises the difference between simulated and measured times.
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

// The job of the observations.
struct ObservedJob {
  topology::Graph graph;
  topology::Sharing sharing;
};

struct FittedCosts {
  topology::MachineCosts costs;
  topology::Speed port;              // of the ports to the network, if there are several hosts
  std::vector<double> predicted_us;  // of each observation
};

// Begins with `start`. Does not change numbers that the job does not use (such as those within a host, if hosts have
// one rank), or the sizes of pieces and lanes, which the transport fixes. Minimizes the mean of
// |log(predicted / measured)| over some of the observations by pattern search (Hooke, Jeeves: "Direct search" solution
// of numerical and statistical problems, J. ACM 8 (1961)); some seconds. Deterministic, unless `enough`, which is
// called regularly, ends it earlier.
Result<FittedCosts> fit_costs(const ObservedJob& job, std::span<const Observation> observations,
                              const topology::MachineCosts& start, const std::function<bool()>& enough = {});

}  // namespace tutti::internal::selection
