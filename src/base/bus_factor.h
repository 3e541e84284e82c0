// Bus bandwidth, as in nccl-tests (doc/PERFORMANCE.md).
#pragma once

#include "base/collectives.h"

namespace tutti::internal {

// Bus bandwidth in units of algorithm bandwidth, which is the size of the vector divided by the time: the share of the
// data that every link must carry.
constexpr double bus_factor(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (has_blocks(collective)) return others;
  return reduces(collective) && alike_everywhere(collective) ? 2 * others : 1;
}

}  // namespace tutti::internal
