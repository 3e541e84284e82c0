// Detects that a peer has ended its side of a link. The communicator usually gets the reason over the control tree. But
// the tree may be split at that moment, or this rank may have lost its position in it. So after a while the lane
// reports the end itself. Each rank that fails ends its own links, so every rank that waits for a dead one fails, one
// after the other, even without the tree.
//
// Threads: as the lane that has it.
#pragma once

#include <poll.h>

#include <cstdint>

namespace tutti::internal::transport {

inline constexpr std::int64_t kEndedGraceNs = 500'000'000;

// For a lane that does not read the socket on which the end shows.
class EndWatch {
 public:
  // The caller keeps the descriptor. -1: never reports an end.
  explicit EndWatch(int fd) : fd_(fd) {}

  // Polled by a waiting rank: whether the peer ended its side at least a grace period ago. In between, the caller has
  // polled for data that the peer sent before.
  [[nodiscard]] bool ended(std::int64_t now) {
    if (since_ns_ == 0) {
      if (fd_ < 0 || now - looked_ns_ < kLookNs) return false;
      looked_ns_ = now;
      if (!hung_up(fd_)) return false;
      since_ns_ = now;
    }
    return now - since_ns_ > kEndedGraceNs;
  }

  // The present state, without the grace period.
  [[nodiscard]] bool hung_up_now() const { return fd_ >= 0 && hung_up(fd_); }
  [[nodiscard]] static bool hung_up(int fd) {
    pollfd p{fd, POLLRDHUP, 0};
    return ::poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }

 private:
  // Each look is a system call.
  static constexpr std::int64_t kLookNs = 50'000'000;

  int fd_;
  std::int64_t looked_ns_ = 0;
  std::int64_t since_ns_ = 0;  // 0: not yet seen
};

}  // namespace tutti::internal::transport
