// Which of a machine's processors each of its ranks is bound to (TUTTI_BIND): a pure function over what the machine is.
#pragma once

#include <cstddef>

#include "base/config.h"
#include "topology/detect.h"

namespace tutti::internal::topology {

// Of the `ranks` ranks on the machine, the share of the one of that number, within `allowed`: kCore: the processors of
// one core; kNuma: those of that core's NUMA node. Ranks are spread evenly over the cores in the order of NUMA nodes,
// neighbours together; where there are more ranks than cores, several share one.
//
// `allowed` itself where there is nothing to choose, and where it has fewer cores than there are ranks and is not all
// that the machine permits: then ranks have been bound already, to processors that differ perhaps, and those that
// share these are not known. REQUIRES: rank < ranks.
ProcessorSet share_of(const Machine& machine, const ProcessorSet& allowed, Bind bind, std::size_t rank,
                      std::size_t ranks);

}  // namespace tutti::internal::topology
