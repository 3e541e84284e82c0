// Pairs of connected shm links.
#pragma once

#include <memory>

#include "conformance.h"
#include "transport/shm/link.h"
#include "transport/shm/pair_link_memory.h"
#include "transport/wakeup_fd.h"

namespace tutti::internal::transport::conformance {

// As between two threads of one process. `own_processor`, `far`: as in LinkOptions.
Pair threads_pair(bool own_processor = true, bool far = false);
// Like between two processes, in one: zero-copy sends use regions and their descriptors.
Pair processes_pair(bool own_processor = true, bool far = false);

// Both ends of the shared state of two processes, in one process; rank 0 is `a`.
struct SharedEnds {
  // The NUMA node on which b runs; -1: any.
  explicit SharedEnds(int node_of_b = -1);
  // Both sides of a link, connected.
  std::pair<std::unique_ptr<shm::PairLinkMemory>, std::unique_ptr<shm::PairLinkMemory>> open(std::uint64_t id,
                                                                                             shm::Turns turns) const;
  WakeupFd wakeup_fd_a = std::move(WakeupFd::create().value());
  WakeupFd wakeup_fd_b = std::move(WakeupFd::create().value());
  std::shared_ptr<shm::Pair> a;
  std::shared_ptr<shm::Pair> b;
};

}  // namespace tutti::internal::transport::conformance
