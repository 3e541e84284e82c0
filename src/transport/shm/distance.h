// Whether the peer's processor is far: lines that it has written take long to come, as between packages, or between
// groups of cores with a last-level cache each. What is copied through a slot then had better not lie in the writer's
// cache when the peer reads it. It is measured, since ranks and virtual processors move: by the time that a load takes
// of a line which the peer has written since this side looked at it last.
//
// Two ranks that exchange, bare rings of 32 slots, time with stores past the cache over time with ordinary ones: 0.6 at
// 4 KiB, 0.45 at 16 KiB, 0.42 at 64 KiB, 0.44 at 256 KiB where such a load takes 120 to 170 ns beyond one from the own
// cache, and 1.4 to 1.9 where it takes 40 to 60.
//
// Threads: of the sending lane.
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
  // Shorter payloads are not worth it.
  static constexpr std::size_t kLeastBytes = 4096;

  // far: until it is known better.
  explicit Distance(bool far) : far_(far) {}
  [[nodiscard]] bool far() const { return far_; }
  // Of each message that is long enough. Whether it is time for load(), which costs some 100 ns.
  [[nodiscard]] bool is_due() {
    const bool settled = evidence_ == (far_ ? kEnough : -kEnough);
    return ++messages_ % (settled ? kEverySettled : kEvery) == 0;
  }
  // Loads the word, and notes how long that took if it is not `seen`: what it was when this side loaded it last.
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
  // Measured: 40 to 60, and 120 to 170. What lies between says nothing.
  static constexpr std::int64_t kNearNs = 85;
  static constexpr std::int64_t kFarNs = 110;
  static constexpr std::int64_t kDisturbedNs = 2000;  // by an interrupt, or another's turn
  // So many more of the one kind than of the other are believed, and twice as many to believe otherwise. With 4, and
  // one limit, a lane changed its mind up to 280 times a second where measurements were mixed.
  static constexpr int kEnough = 8;

  // The second: the nanoseconds that it took.
  static std::pair<std::uint32_t, std::int64_t> timed_load(const std::atomic<std::uint32_t>& word) {
    const std::int64_t begin = now_ns();
    wait_for_loads();
    const std::uint32_t value = word.load(std::memory_order_acquire);
    wait_for_loads();
    return {value, now_ns() - begin};
  }
  // What it takes where the line is in this processor's own cache: mostly the clock's time.
  static std::int64_t least_ns() {
    static constinit std::atomic<std::int64_t> known{-1};
    std::int64_t least = known.load(std::memory_order_relaxed);
    if (least >= 0) [[likely]]
      return least;
    const std::atomic<std::uint32_t> own{0};
    least = INT64_MAX;
    for (int i = 0; i < 64; ++i) least = std::min(least, timed_load(own).second);
    known.store(least, std::memory_order_relaxed);  // of threads that come at the same time any
    return least;
  }

  std::uint32_t messages_ = 0;
  int evidence_ = 0;  // measurements that say far less those that do not, of late
  bool far_;
};

}  // namespace tutti::internal::transport::shm
