// NUMA placement of memory.
#pragma once

#include <cstddef>

namespace tutti::internal {

inline constexpr int kMostNodes = 1024;

// Pages of the range that are not allocated yet will come from this node as long as it has free memory, whichever
// process touches shared pages first. If the kernel forbids that, as in many containers, nothing changes. REQUIRES:
// whole pages; 0 <= node < kMostNodes.
void prefer_node(void* memory, std::size_t bytes, int node);

}  // namespace tutti::internal
