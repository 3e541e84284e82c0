#include "transport/tcp/send.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "os/clock.h"

namespace tutti::internal::transport::tcp {
namespace {

// One push() begins at most this many frames (or one for each stream), so that a peer that reads as fast as this rank
// writes cannot keep the caller from its other lanes. The limit counts frames, because cutting a frame at anything
// other than the caller's n could cut an element.
constexpr std::size_t kFramesPerPush = 4;
// Up to this size a copy behind the header is cheaper than a second entry in the kernel's vector.
constexpr std::size_t kInlineBytes = 1024;

bool is_full(int error_number) {
  return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR || error_number == ENOBUFS;
}

ssize_t send_both(int fd, const std::byte* head, std::size_t head_bytes, const std::byte* payload, std::size_t n) {
  if (n <= kInlineBytes) {
    std::array<std::byte, kHeaderBytes + kInlineBytes> packet;
    std::memcpy(packet.data(), head, head_bytes);
    std::memcpy(packet.data() + head_bytes, payload, n);
    return ::send(fd, packet.data(), head_bytes + n, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  // The kernel does not write through these pointers.
  std::array<iovec, 2> parts{{{const_cast<std::byte*>(head), head_bytes}, {const_cast<std::byte*>(payload), n}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t sent = ::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  const bool refused = sent < 0 && (errno == EPERM || errno == EACCES || errno == ENOSYS);  // by a filter of calls
  return refused ? ::send(fd, head, head_bytes, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE) : sent;
}

}  // namespace

TcpSend::TcpSend(std::vector<int> fds, const Options& options, const LaneTraits& traits)
    : fds_(std::move(fds)), peer_(options.peer), peer_end_(fds_.front()), silence_(fds_, options.silence_ms) {
  traits_ = traits;
}

std::size_t TcpSend::push(const Fingerprint& fingerprint, const Source& source, std::size_t offset, std::size_t n) {
  if (n == 0 || !status_.is_ok()) return 0;
  const std::uint64_t end = taken_ + n;
  const std::byte* const bytes = source.base + offset;  // the byte at place taken_ of the lane's stream
  std::size_t may_open = std::max(kFramesPerPush, fds_.size());
  std::uint32_t full_streams = 0;
  for (bool again = true; again && status_.is_ok();) {
    again = false;
    for (std::uint64_t number = front_; number < front_ + fds_.size(); ++number) {
      if (number == next_) {
        if (announced_ >= end || may_open == 0) break;
        --may_open;
        open_frame(fingerprint, std::min<std::size_t>(kFrameBytes, end - announced_));
      }
      const std::size_t stream = number % fds_.size();
      Frame& current = frames_[stream];
      const std::uint64_t from = current.begin + current.sent;
      if (current.done() || from >= end || (full_streams >> stream & 1u) != 0) continue;
      const std::size_t wanted = std::min<std::size_t>(current.length - current.sent, end - from);
      if (!write(fds_[stream], current, bytes + (from - taken_), wanted)) full_streams |= 1u << stream;
    }
    for (; front_ < next_ && frame(front_).done(); ++front_) again = true;
  }
  forget_unsent();
  const std::uint64_t held = front_ < next_ ? frame(front_).begin + frame(front_).sent : announced_;
  const auto took = static_cast<std::size_t>(std::min(held, end) - taken_);
  taken_ += took;
  return took;
}

void TcpSend::open_frame(const Fingerprint& fingerprint, std::size_t length) {
  frame(next_) = Frame{encode(length, fingerprint), 0, length, 0, announced_};
  ++next_;
  announced_ += length;
}

// If no byte of a frame has been sent, the next push() may cut it differently.
void TcpSend::forget_unsent() {
  for (; next_ > front_ && frame(next_ - 1).header_sent == 0; --next_) announced_ = frame(next_ - 1).begin;
}

bool TcpSend::write(int fd, Frame& frame, const std::byte* payload, std::size_t n) {
  const std::size_t head_bytes = kHeaderBytes - frame.header_sent;
  const std::byte* const head = reinterpret_cast<const std::byte*>(&frame.header) + frame.header_sent;
  const ssize_t result = head_bytes > 0 ? send_both(fd, head, head_bytes, payload, n)
                                        : ::send(fd, payload, n, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (result < 0) {
    if (!is_full(errno)) fail(errno);
    return false;
  }
  const auto took = static_cast<std::size_t>(result);
  const std::size_t head_took = std::min(took, head_bytes);
  frame.header_sent += head_took;
  frame.sent += took - head_took;
  return took == head_bytes + n;
}

// A peer that no longer reads may leave room for the remaining data of this rank, but need not.
Status TcpSend::status() {
  const std::int64_t now = now_ns();
  if (status_.is_ok() && silence_.gone(now)) fail(ETIMEDOUT);
  if (status_.is_ok() && peer_end_.ended(now)) {
    status_ = Status::remote(fmt::format("rank {}: tcp connection closed by the peer", peer_));
  }
  return status_;
}

void TcpSend::fail(int error_number) {
  status_ = Status::remote(fmt::format("rank {}: tcp connection lost while sending: {}", peer_,
                                       std::system_category().message(error_number)));
}

}  // namespace tutti::internal::transport::tcp
