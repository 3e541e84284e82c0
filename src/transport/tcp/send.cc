#include "transport/tcp/send.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "os/clock.h"
#include "transport/tcp/stream_errors.h"

namespace tutti::internal::transport::tcp {
namespace {

// One push() begins at most this many frames (or one for each stream), so that a peer that reads as fast as this rank
// writes cannot keep the caller from its other lanes. The limit counts frames, because cutting a frame at anything
// other than the caller's n could cut an element.
constexpr std::size_t kFramesPerPush = 4;

}  // namespace

TcpSend::TcpSend(std::span<net::ByteStream> streams, std::vector<int> fds, KeptStreams* kept, const Options& options,
                 const LaneTraits& traits)
    : streams_(streams),
      fds_(std::move(fds)),
      kept_(kept),
      peer_(options.peer),
      peer_end_(fds_.front()),
      silence_(fds_, options.silence_ms) {
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
      if (!write(stream, current, bytes + (from - taken_), wanted)) full_streams |= 1u << stream;
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

bool TcpSend::write(std::size_t stream, Frame& frame, const std::byte* payload, std::size_t n) {
  const std::size_t head_bytes = kHeaderBytes - frame.header_sent;
  const std::byte* const head = reinterpret_cast<const std::byte*>(&frame.header) + frame.header_sent;
  const ssize_t result = kept_ == nullptr ? streams_[stream].send(head, head_bytes, payload, n)
                                          : kept_->write(stream, head, head_bytes, payload, n);
  if (result < 0) {
    if (!is_temporary(errno)) status_ = lost_while(peer_, "sending", errno);
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
  if (kept_ != nullptr) return kept_->status(now);
  if (status_.is_ok() && silence_.gone(now)) status_ = lost_while(peer_, "sending", ETIMEDOUT);
  if (status_.is_ok() && peer_end_.ended(now)) status_ = closed_by(peer_);
  return status_;
}

}  // namespace tutti::internal::transport::tcp
