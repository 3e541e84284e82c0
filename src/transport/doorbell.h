// How a sleeping rank is woken by peers that share memory with it: an eventfd of its own, which every
// such peer holds a copy of.
//
// Who is about to sleep publishes a flag in shared memory, makes every other thread's stores visible
// (heavy_fence), looks once more, and sleeps on its doorbell. Who has sent something looks at the flag
// after its store and rings if it is set. The data path thus needs no fence: the sleeper pays for it
// with membarrier(2), whose expedited global form acts on all processes that have registered.
#pragma once

#include <atomic>

#include "base/status.h"
#include "base/unique_fd.h"

namespace tutti::transport {

class Doorbell {
 public:
  static Result<Doorbell> create();
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Forgets earlier rings. Owner only.
  void clear() const;

 private:
  explicit Doorbell(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// Wakes the owner of the eventfd `fd`, now or at its next sleep. Any thread.
void ring(int fd);

// True if heavy_fence() orders against all registered processes. Where the kernel lacks it, sleepers
// must look again after kUnfencedSleepMs.
namespace detail {
extern const bool heavy_fence_works;  // registers this process when the library is loaded
}
[[nodiscard]] inline bool heavy_fence_works() {
  return detail::heavy_fence_works;
}
void heavy_fence();
// The other half, for who is never to pay: after a store and before a load that must not pass it, where
// the other side has a heavy_fence() between its own store and load. A compiler barrier, or a real fence
// where heavy_fence() does not work.
inline void light_fence() {
  if (heavy_fence_works()) [[likely]] {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
}
inline constexpr int kUnfencedSleepMs = 1;

}  // namespace tutti::transport
