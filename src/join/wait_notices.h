// Logs at intervals that a rank waits for the others to join.
//
// Threads: the one that waits.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/config.h"
#include "base/log.h"
#include "os/clock.h"

namespace tutti::internal {

class WaitNotices {
 public:
  explicit WaitNotices(const Settings& settings) : next_ms_(std::max<std::int64_t>(0, settings.wait_notice_ms)) {}

  // Called in the waiting loop. Logs `text(waited)`, with `waited` such as "10 s".
  template <class Text>
  void look(Text text) {
    const std::int64_t waited_ms = (now_ns() - begin_ns_) / 1'000'000;
    if (next_ms_ == 0 || waited_ms < next_ms_) return;
    next_ms_ += kAgainMs;
    log::warn(text(waited_ms < 1000 ? fmt::format("{} ms", waited_ms) : fmt::format("{} s", waited_ms / 1000)));
  }

 private:
  static constexpr std::int64_t kAgainMs = 60'000;  // as in RootService
  const std::int64_t begin_ns_ = now_ns();
  std::int64_t next_ms_;
};

}  // namespace tutti::internal
