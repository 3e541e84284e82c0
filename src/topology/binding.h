// The processors to which each rank of a machine is bound (TUTTI_BIND): a pure function of the machine.
#pragma once

#include <cstddef>

#include "base/config.h"
#include "topology/detect.h"

namespace tutti::internal::topology {

// The share of local rank `rank` of `ranks`, within `allowed`. kCore: the processors of one core; kNuma: those of that
// core's NUMA node. Ranks are spread evenly over the cores in the order of NUMA nodes, neighbours together. If there
// are more ranks than cores, several ranks share a core.
//
// Returns `allowed` if there is no choice. Also if it has fewer cores than there are ranks and is smaller than the
// machine permits: then ranks have already been bound, perhaps to different processors, and it is unknown which ranks
// share these. REQUIRES: rank < ranks.
ProcessorSet share_of(const Machine& machine, const ProcessorSet& allowed, Bind bind, std::size_t rank,
                      std::size_t ranks);

}  // namespace tutti::internal::topology
