#include "communicator/parting.h"

#include <algorithm>
#include <atomic>

namespace tutti::internal {
namespace {

// Time for the other ranks to reach finalize.
constexpr std::int64_t kPartingMs = 1000;
// If ranks finalize communicators in different orders, they wait for each other uselessly. After each useless wait the
// next one of this process is half as long, after each useful one twice as long.
constexpr int kMaxDisappointments = 9;
static_assert(kPartingMs >> kMaxDisappointments > 0);
std::atomic<int> disappointments{0};

bool others_have_left(const Epoch& epoch) {
  for (int r = 0; r < epoch.ranks(); ++r) {
    if (r != epoch.rank() && !epoch.failure()->departed(r)) return false;
  }
  return true;
}

}  // namespace

void part(const Epoch& epoch) {
  if (epoch.tree() == nullptr) return;
  const FailureState& failure = *epoch.failure();
  const bool waits = !failure.failed() && epoch.process_rank().others_may_come();
  const int shift = disappointments.load(std::memory_order_relaxed);
  // The last rank does not wait, so it learns nothing about the length of waits.
  const bool is_last = shift > 0 && others_have_left(epoch);
  const bool all = epoch.tree()->finish(waits ? kPartingMs >> shift : 0);
  if (waits && !is_last && !failure.failed()) {
    const int next = all ? std::max(shift - 1, 0) : std::min(shift + 1, kMaxDisappointments);
    disappointments.store(next, std::memory_order_relaxed);
  }
  epoch.process_rank().leave();
}

}  // namespace tutti::internal
