// A peer that has ended its side of a link. The communicator knows better why, as it hears of that over the control
// tree; but the tree may have a gap just then, or this rank no place in it any more. So after a while a lane reports
// it: each rank that fails ends its own links, and so every rank that waits for a dead one fails, rank by rank,
// whatever has become of the tree.
//
// Threads: as the lane that has it.
#pragma once

#include <poll.h>

#include <cstdint>

namespace tutti::internal::transport {

inline constexpr std::int64_t kEndedGraceNs = 500'000'000;

// Of a lane that does not read the socket by which the end shows.
class EndWatch {
 public:
  // The descriptor stays its owner's. -1: no end is ever seen.
  explicit EndWatch(int fd) : fd_(fd) {}

  // Asked again and again by a rank that waits: whether the peer has ended its side, and that was so the grace ago.
  // The caller has looked in between at what the peer did before.
  [[nodiscard]] bool ended(std::int64_t now) {
    if (since_ns_ == 0) {
      if (fd_ < 0 || now - looked_ns_ < kLookNs) return false;
      looked_ns_ = now;
      if (!hung_up(fd_)) return false;
      since_ns_ = now;
    }
    return now - since_ns_ > kEndedGraceNs;
  }

  // As things are now, without grace.
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
