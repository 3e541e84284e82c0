// Times one problem over all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "operation.h"
#include "options.h"

namespace tutti::internal::perf {

// One operation (of a ping-pong: one way), in microseconds, over batches of iterations; of each batch the slowest rank
// counts, or what options.average says.
struct Timing {
  double min_us = 0;
  double median_us = 0;
  double p99_us = 0;
  double calling_us = 0;  // median, until the call had returned
  std::int64_t iterations = 0;
};

struct Measurement {
  Timing timing;
  std::int64_t errors = 0;  // over all ranks; -1: not checked
};

// Bus bandwidth in units of algorithm bandwidth, as in nccl-tests (doc/PERFORMANCE.md): the share of the
// data that every link must carry.
double bus_factor(Subject subject, int ranks);
// The same; where blocks have counts of their own, by what the busiest rank must send or receive.
double bus_factor(const Problem& problem);

// How uncertain the median of the values is, as a share of it: half of the interval in which that of endless measuring
// lies with 95 %. REQUIRES: there are some.
double spread_of(std::vector<double> values);

// Verifies, warms up and times. Collective: every rank gets the same result, except that `*own_errors`
// grows by what this rank found wrong by itself.
Result<Measurement> measure(const Options& options, const Problem& problem, const Rank& rank, const Buffers& buffers,
                            bool in_place, std::int64_t* own_errors);

}  // namespace tutti::internal::perf
