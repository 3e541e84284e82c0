// In which NUMA node memory lies.
#pragma once

#include <cstddef>

namespace tutti::internal {

inline constexpr int kMostNodes = 1024;

// Pages of the range that are not there yet come from this node as long as it has some, whichever process touches them
// first where they are shared. Where the kernel does not allow that, as in many containers, nothing changes.
// REQUIRES: whole pages; 0 <= node < kMostNodes.
void prefer_node(void* memory, std::size_t bytes, int node);

}  // namespace tutti::internal
