// How a sleeping rank is woken by peers that share memory with it: an eventfd of its own, which every
// such peer holds a copy of.
//
// A rank that is about to sleep publishes a flag in shared memory, makes every other thread's stores visible
// (asymmetric_fence_heavy in base/asymmetric_fence.h), looks once more, and sleeps on its wakeup fd. A rank that has
// sent something looks at the flag after its store and rings if it is set. The data path thus needs no fence: the
// sleeper pays for it with membarrier(2), whose expedited global form acts on all processes that have registered.
#pragma once

#include "base/status.h"
#include "base/unique_fd.h"

namespace tutti::internal::transport {

class WakeupFd {
 public:
  static Result<WakeupFd> create();
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Forgets earlier rings. Owner only.
  void clear() const;

 private:
  explicit WakeupFd(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// Wakes the owner of the eventfd `fd`, now or at its next sleep. Any thread.
void ring(int fd);

}  // namespace tutti::internal::transport
