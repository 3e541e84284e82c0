// The names of collectives in the formats of NCCL's RAS and Inspector.
#pragma once

#include <array>
#include <cstddef>

#include "base/collectives.h"

namespace tutti::internal::monitor {

// NCCL's, and for collectives that it lacks, names of the same kind. Indexed by Collective.
inline constexpr std::array<const char*, kCollectives> kNcclNames = {
    "AllReduce", "ReduceScatter", "AllGather", "Broadcast",  "Reduce",         "Barrier",   "Gather",  "Scatter",
    "AlltoAll",  "Scan",          "Exscan",    "AllGatherV", "ReduceScatterV", "AlltoAllv", "GatherV", "ScatterV"};
constexpr const char* nccl_name(Collective collective) {
  return kNcclNames[static_cast<std::size_t>(collective)];
}

}  // namespace tutti::internal::monitor
