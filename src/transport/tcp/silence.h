// Whether the host at the other end of a lane's streams has failed.
//
// Threads: as the lane that has it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "net/socket.h"

namespace tutti::internal::transport::tcp {

class SilenceWatch {
 public:
  // The link owns the descriptors. limit_ms 0: never reports a failure.
  SilenceWatch(std::vector<int> fds, std::int64_t limit_ms) : fds_(std::move(fds)), limit_ms_(limit_ms) {}

  // Polled by a waiting rank. Each check is a system call for each stream, so checks are rare.
  [[nodiscard]] bool gone(std::int64_t now) {
    if (limit_ms_ == 0 || now < next_ns_) return false;
    next_ns_ = now + net::silence_look_ms(limit_ms_) * 1'000'000;
    return std::any_of(fds_.begin(), fds_.end(), [this](int fd) { return net::is_silent(fd, limit_ms_); });
  }

 private:
  std::vector<int> fds_;
  std::int64_t limit_ms_;
  std::int64_t next_ns_ = 0;
};

}  // namespace tutti::internal::transport::tcp
