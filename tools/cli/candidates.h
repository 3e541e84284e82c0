// Times of algorithms, measured on ranks of a job: each candidate of each collective at each size.
#pragma once

#include <tutti/tutti.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "algorithms/catalog.h"
#include "base/status.h"
#include "selection/tuning.h"
#include "topology/routes.h"

namespace tutti::internal::tools {

struct MeasureOptions {
  std::vector<Collective> collectives;  // with buffers or none, but none whose blocks vary
  std::vector<std::size_t> sizes;       // bytes of the whole vector, ascending
  std::vector<std::string> only;        // names; empty: all of the catalog
  double seconds = 20;                  // that all of it may take, about
  // Told on rank 0, in percent.
  std::function<void(int)> progress;
};

struct MeasuredTime {
  Collective collective = Collective::kAllReduce;
  std::size_t bytes = 0;
  const algorithms::AlgorithmEntry* entry = nullptr;
  double us = 0;  // of a call, of the slowest rank, the median of some rounds
  int calls = 1;  // that were timed in a row
};

struct Measurements {
  selection::JobKind kind;
  algorithms::World world;
  topology::Sharing sharing;
  std::vector<MeasuredTime> times;  // candidates that were clearly slower at the size before are left out
};

// Names this rank's host to itself: ranks that share it have the same number.
std::uint64_t host_number();

// Every rank of the communicator calls it; the result is the same on each. Candidates take turns, so that what the
// machine does meanwhile concerns all; those with the same schedules for these ranks are one, and have one time.
Result<Measurements> measure_candidates(tuttiComm_t comm, const MeasureOptions& options);

}  // namespace tutti::internal::tools
