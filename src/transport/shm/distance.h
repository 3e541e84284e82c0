// Detects whether the peer's processor is far: lines that it has written arrive slowly, as between packages, or between
// groups of cores with separate last-level caches. Then data in a slot should not be in the writer's cache when the
// peer reads it. The distance is measured, because ranks and virtual processors move: by the time of a load of a line
// that the peer has written since this side last looked at it.
//
// Two ranks that exchange, bare rings of 32 slots, time with stores past the cache over time with ordinary ones: 0.6 at
// 4 KiB, 0.45 at 16 KiB, 0.42 at 64 KiB, 0.44 at 256 KiB if such a load takes 120 to 170 ns more than one from the own
// cache, and 1.4 to 1.9 if it takes 40 to 60 ns more.
//
// Threads: the one of the sending lane.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "os/clock.h"
#include "os/processor.h"

namespace tutti::internal::transport::shm {

class Distance {
 public:
  // For shorter payloads it makes no difference.
  static constexpr std::size_t kLeastBytes = 4096;

  // far: the assumption until it is measured.
  explicit Distance(bool far) : far_(far) {}
  [[nodiscard]] bool far() const { return far_; }
  // Called for each message that is long enough. Whether a load() is due, which costs about 100 ns.
  [[nodiscard]] bool is_due() {
    const bool settled = evidence_ == (far_ ? kEnough : -kEnough);
    return ++messages_ % (settled ? kEverySettled : kEvery) == 0;
  }
  // Loads the word, and records how long that took if it is not `seen`, its value when this side loaded it last.
  std::uint32_t load(const std::atomic<std::uint32_t>& word, std::uint32_t seen) {
    const auto [value, ns] = timed_load(word);
    if (value != seen) note(ns - least_ns());
    return value;
  }
  void note(std::int64_t ns) {
    if (ns > kDisturbedNs) return;
    if (ns >= kNearNs && ns <= kFarNs) return;
    evidence_ = std::clamp(evidence_ + (ns > kFarNs ? 1 : -1), -kEnough, kEnough);
    if (evidence_ == kEnough) far_ = true;
    if (evidence_ == -kEnough) far_ = false;
  }

 private:
  static constexpr std::uint32_t kEvery = 8;
  static constexpr std::uint32_t kEverySettled = 32;
  // Measured: 40 to 60, and 120 to 170. Values in between are not conclusive.
  static constexpr std::int64_t kNearNs = 85;
  static constexpr std::int64_t kFarNs = 110;
  static constexpr std::int64_t kDisturbedNs = 2000;  // by an interrupt, or another thread's time slice
  // One kind of measurement must exceed the other by this number, and by twice this number to reverse a decision. With
  // 4 and a single limit, a lane reversed its decision up to 280 times a second if measurements were mixed.
  static constexpr int kEnough = 8;

  // The second value: the duration in nanoseconds.
  static std::pair<std::uint32_t, std::int64_t> timed_load(const std::atomic<std::uint32_t>& word) {
    const std::int64_t begin = now_ns();
    wait_for_loads();
    const std::uint32_t value = word.load(std::memory_order_acquire);
    wait_for_loads();
    return {value, now_ns() - begin};
  }
  // The duration if the line is in this processor's own cache: mostly the time of the clock.
  static std::int64_t least_ns() {
    static constinit std::atomic<std::int64_t> known{-1};
    std::int64_t least = known.load(std::memory_order_relaxed);
    if (least >= 0) [[likely]]
      return least;
    const std::atomic<std::uint32_t> own{0};
    least = INT64_MAX;
    for (int i = 0; i < 64; ++i) least = std::min(least, timed_load(own).second);
    known.store(least, std::memory_order_relaxed);  // if several threads do this at the same time, any result is good
    return least;
  }

  std::uint32_t messages_ = 0;
  int evidence_ = 0;  // recent measurements that say far, minus those that say near
  bool far_;
};

}  // namespace tutti::internal::transport::shm
