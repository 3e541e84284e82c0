#include "net/shortage.h"

#include <atomic>

#include "os/clock.h"

namespace tutti::internal::net {
namespace {

constexpr std::int64_t kRecentMs = 100;

std::atomic<std::int64_t> last_noted_ns{-kRecentMs * kNsPerMs};

}  // namespace

void Shortage::note(const Status& why) {
  const std::int64_t now = now_ns();
  last_noted_ns.store(now, std::memory_order_relaxed);
  if (since_ns_ == 0) since_ns_ = now;
  if (now - since_ns_ >= kShortageMs * kNsPerMs) lasting_ = why;
}

bool Shortage::anywhere() {
  return now_ns() - last_noted_ns.load(std::memory_order_relaxed) < kRecentMs * kNsPerMs;
}

}  // namespace tutti::internal::net
