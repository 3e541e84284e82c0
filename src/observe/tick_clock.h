// From readings of ticks() to times of CLOCK_MONOTONIC.
#pragma once

#include <algorithm>
#include <cstdint>

#include "os/clock.h"
#include "os/ticks.h"

namespace tutti::internal::observe {

struct Moment {
  std::uint64_t ticks = 0;
  std::int64_t ns = 0;  // CLOCK_MONOTONIC; 0: none
};

// The first and the last one that the files of a machine have.
struct Moments {
  Moment first;
  Moment last;

  void note(const Moment& made, const Moment& later) {
    if (first.ns == 0 || made.ns < first.ns) first = made;
    for (const Moment& moment : {made, later}) {
      if (moment.ns > last.ns) last = moment;
    }
  }
};

// Now. If the thread loses its processor between two readings, it reads again.
inline Moment moment_now() {
  Moment best;
  std::uint64_t shortest = UINT64_MAX;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const std::uint64_t before = ticks();
    const std::int64_t ns = now_ns();
    const std::uint64_t passed = ticks() - before;
    if (passed < shortest) best = {before + passed / 2, ns};
    shortest = std::min(shortest, passed);
  }
  return best;
}

// Of one machine, since it was started. Threads: any.
class TickClock {
 public:
  // limit_ns: no time is after it, whatever is read.
  TickClock(const Moment& first, const Moment& later, std::int64_t limit_ns)
      : first_{first.ticks, std::clamp<std::int64_t>(first.ns, 0, limit_ns)},
        limit_ns_(limit_ns),
        knows_times_(later.ns != 0) {
    const std::int64_t passed_ns = later.ns - first_.ns;
    const auto passed = static_cast<double>(static_cast<std::int64_t>(later.ticks - first_.ticks));
    // Within so short a time the order of events matters, and not their distance.
    if (passed_ns > kMeasurableNs && passed > 0) ns_per_tick_ = static_cast<double>(passed_ns) / passed;
  }
  [[nodiscard]] std::int64_t ns_of(std::uint64_t reading) const {
    const auto passed = static_cast<double>(static_cast<std::int64_t>(reading - first_.ticks));
    // As a double, the limit may be more than the limit.
    const double most = static_cast<double>(limit_ns_ - first_.ns) * (1 - 1e-12);
    const double least = -static_cast<double>(first_.ns);
    return first_.ns + static_cast<std::int64_t>(std::clamp(passed * ns_per_tick_, least, std::max(least, most)));
  }
  [[nodiscard]] std::int64_t limit_ns() const { return limit_ns_; }
  // False: there was no later moment.
  [[nodiscard]] bool knows_times() const { return knows_times_; }

 private:
  static constexpr std::int64_t kMeasurableNs = 100'000;

  Moment first_;
  std::int64_t limit_ns_;
  bool knows_times_;
  double ns_per_tick_ = 0;
};

}  // namespace tutti::internal::observe
