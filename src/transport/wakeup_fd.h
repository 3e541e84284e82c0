// How the sleeping threads of a rank are woken by peers that share memory with it: an eventfd, which every such peer
// holds a copy of, for all communicators of the rank that have been split from each other. Nobody ever reads it: who
// sleeps has it in an epoll set of the thread's own, edge-triggered, which tells of each ring once. So a ring wakes all
// threads of the rank that sleep, and each looks whether it was meant.
//
// A rank that is about to sleep publishes a flag in shared memory, makes every other thread's stores visible
// (asymmetric_fence_heavy in base/asymmetric_fence.h), looks once more, and sleeps on its wakeup fd. A rank that has
// sent something looks at the flag after its store and rings if it is set. The data path thus needs no fence: the
// sleeper pays for it with membarrier(2), whose expedited global form acts on all processes that have registered.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tutti::internal::transport {

// Copies are of the same eventfd. Any thread.
class WakeupFd {
 public:
  static Result<WakeupFd> create();
  [[nodiscard]] int fd() const { return state_->fd.get(); }
  // From now on the set tells of each ring.
  [[nodiscard]] Status add_to(const UniqueFd& epoll) const;

 private:
  friend class SleepingPlace;
  struct State {
    UniqueFd fd;
    Mutex mutex;
    std::vector<UniqueFd> places TUTTI_GUARDED_BY(mutex);  // epoll sets in which nobody sleeps; has room for all
    std::size_t made TUTTI_GUARDED_BY(mutex) = 0;
  };
  explicit WakeupFd(UniqueFd fd) : state_(std::make_shared<State>()) { state_->fd = std::move(fd); }
  [[nodiscard]] Result<UniqueFd> make_place() const TUTTI_EXCLUDES(state_->mutex);
  std::shared_ptr<State> state_;
};

// Where one thread sleeps that waits for nothing but rings. There are as many as threads have slept at a time.
class SleepingPlace {
 public:
  explicit SleepingPlace(const WakeupFd& wakeup_fd);
  SleepingPlace(const SleepingPlace&) = delete;
  SleepingPlace& operator=(const SleepingPlace&) = delete;
  ~SleepingPlace();
  // Until the next ring, or one that no sleep in this place has seen; not longer than that.
  void sleep(int longest_ms) const;

 private:
  const WakeupFd& wakeup_fd_;
  UniqueFd epoll_;  // invalid for want of a descriptor: looks again soon
};

// Wakes the owner of the eventfd `fd`, now or at its next sleep. Any thread.
void ring(int fd);

}  // namespace tutti::internal::transport
