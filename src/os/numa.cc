#include "os/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <climits>

namespace tutti::internal {

void prefer_node(void* memory, std::size_t bytes, int node) {
  constexpr std::size_t kBits = CHAR_BIT * sizeof(unsigned long);
  std::array<unsigned long, kMostNodes / kBits> nodes{};
  nodes[static_cast<std::size_t>(node) / kBits] = 1ul << static_cast<std::size_t>(node) % kBits;
  // The kernel uses one bit less than this number.
  (void)::syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, nodes.data(), nodes.size() * kBits + 1, 0u);
}

}  // namespace tutti::internal
