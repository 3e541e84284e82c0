// An asymmetric fence, for two sides that each store and then load what the other stores. The frequent side pays
// nothing. The rare side pays for both, with membarrier(2), whose expedited global form acts on all processes that have
// registered.
#pragma once

#include <atomic>

namespace tutti::internal {

// True if asymmetric_fence_heavy() orders against all registered processes. If the kernel lacks it, sleepers must poll
// again after kUnfencedSleepMs.
namespace detail {
extern const bool asymmetric_fence_works;  // registers this process when the library is loaded
}
[[nodiscard]] inline bool asymmetric_fence_works() {
  return detail::asymmetric_fence_works;
}
void asymmetric_fence_heavy();
// Registers again, in a process that was forked after the library was loaded.
void register_for_asymmetric_fence();
// The frequent side's half, between a store and a load that must not pass it; the other side has an
// asymmetric_fence_heavy() between its own store and load. A compiler barrier, or a real fence where
// asymmetric_fence_heavy() does not work.
inline void asymmetric_fence_light() {
  if (asymmetric_fence_works()) [[likely]] {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
}
inline constexpr int kUnfencedSleepMs = 1;

}  // namespace tutti::internal
