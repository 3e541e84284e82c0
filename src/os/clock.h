// Monotonic time. Every wait takes a Deadline, so that every wait ends.
#pragma once

#include <chrono>
#include <cstdint>

#include "os/scheduler.h"

namespace tutti::internal {

inline constexpr std::int64_t kNsPerMs = 1'000'000;

// Nanoseconds of CLOCK_MONOTONIC.
inline std::int64_t now_ns() {
  if (os::Scheduler* const simulated = os::scheduler(); simulated != nullptr) [[unlikely]]
    return simulated->now_ns();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Deadline {
 public:
  static Deadline after_ms(std::int64_t ms) { return Deadline(now_ns() + ms * kNsPerMs); }
  [[nodiscard]] bool passed() const { return now_ns() >= at_ns_; }
  // Milliseconds left, at least 0, at most `cap`: the timeout argument of poll(2).
  [[nodiscard]] int left_ms(int cap) const {
    const std::int64_t left = (at_ns_ - now_ns() + 999'999) / 1'000'000;
    return left <= 0 ? 0 : left > cap ? cap : static_cast<int>(left);
  }
  [[nodiscard]] std::int64_t at_ns() const { return at_ns_; }

 private:
  explicit Deadline(std::int64_t at_ns) : at_ns_(at_ns) {}
  std::int64_t at_ns_;
};

}  // namespace tutti::internal
