#include "transport/tcp/recv.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/copy.h"
#include "os/clock.h"
#include "transport/end_watch.h"
#include "transport/tcp/stream_errors.h"

namespace tutti::internal::transport::tcp {
namespace {

// Read at a time into the staging memory, which a reduction then reads from the cache.
constexpr std::size_t kReadBytes = 128 * 1024;
// If the end of a read cuts a view shorter than this, it may cut an element: read more.
constexpr std::size_t kShortViewBytes = kLeastViewBytes;
// Data that may precede a read: a short view or part of a header.
constexpr std::size_t kStagingBytes = kReadBytes + kShortViewBytes;
// From here on a copy costs more than a system call: read into user memory.
constexpr std::size_t kDirectBytes = 8 * 1024;
// One pull() takes at most this much, so that the caller's other lanes are served as well.
constexpr std::size_t kPullBytes = 1024 * 1024;

}  // namespace

TcpRecv::TcpRecv(std::span<net::ByteStream> streams, const std::vector<int>& fds, KeptStreams* kept,
                 const Options& options, const LaneTraits& traits)
    : streams_(fds.size()), kept_(kept), peer_(options.peer), silence_(fds, options.silence_ms) {
  traits_ = traits;
  for (std::size_t i = 0; i < fds.size(); ++i) {
    streams_[i].bytes = kept == nullptr ? &streams[i] : nullptr;
    streams_[i].index = i;
    streams_[i].staging = std::make_unique_for_overwrite<std::byte[]>(kStagingBytes);
  }
}

RecvLane::View TcpRecv::peek(std::size_t want) {
  if (frame_left_ == 0 && !next_frame(kReadBytes)) return {};
  Stream& stream = current();
  const std::size_t useful = std::min(want, frame_left_);
  if (stream.staged() < useful && stream.staged() < kShortViewBytes) fill(stream, kReadBytes);
  const std::size_t size = std::min(stream.staged(), frame_left_);
  return {stream.staging.get() + stream.begin, size, fingerprint_};
}

bool TcpRecv::consume(std::size_t n) {
  if (n == 0) return true;
  current().begin += n;
  frame_left_ -= n;
  if (frame_left_ == 0) ++frame_number_;
  return true;
}

std::size_t TcpRecv::pull(std::byte* destination, std::size_t n, Fingerprint* fingerprint) {
  n = std::min(n, kPullBytes);
  const std::size_t header_read = n >= kDirectBytes ? kHeaderBytes : kReadBytes;
  if (n == 0 || (frame_left_ == 0 && !next_frame(header_read))) return 0;
  *fingerprint = fingerprint_;
  std::size_t total = 0;
  while (total < n) {
    if (frame_left_ == 0) {
      if (!next_frame(header_read) || fingerprint_ != *fingerprint) break;
    }
    std::size_t got = drain_staged(destination + total, n - total);
    if (got == 0) got = read_direct(destination + total, n - total);
    if (got == 0) break;
    total += got;
  }
  return total;
}

bool TcpRecv::next_frame(std::size_t most) {
  Stream& stream = current();
  if (stream.staged() < kHeaderBytes) fill(stream, most);
  if (stream.staged() < kHeaderBytes) return false;
  FrameHeader header;
  std::memcpy(&header, stream.staging.get() + stream.begin, kHeaderBytes);
  frame_left_ = decoded_length(header);
  if (frame_left_ == 0) {
    if (status_.is_ok())
      status_ = Status::internal(fmt::format("rank {}: protocol error: no tcp frame begins where one must", peer_));
    return false;
  }
  stream.begin += kHeaderBytes;
  fingerprint_ = decoded_fingerprint(header);
  return true;
}

void TcpRecv::fill(Stream& stream, std::size_t most) {
  if (!status_.is_ok()) return;
  // At most a short view or part of a header is moved.
  if (stream.begin > 0) std::memmove(stream.staging.get(), stream.staging.get() + stream.begin, stream.staged());
  stream.end -= stream.begin;
  stream.begin = 0;
  const std::size_t room = std::min(most, kStagingBytes - stream.end);
  std::byte* const at = stream.staging.get() + stream.end;
  const ssize_t result = kept_ == nullptr ? stream.bytes->recv(at, room) : kept_->read(stream.index, at, room);
  if (arrived(result)) stream.end += static_cast<std::size_t>(result);
}

std::size_t TcpRecv::drain_staged(std::byte* destination, std::size_t n) {
  Stream& stream = current();
  const std::size_t wanted = std::min(n, frame_left_);
  if (stream.staged() == 0 && wanted < kDirectBytes) fill(stream, kReadBytes);
  const std::size_t size = std::min(stream.staged(), wanted);
  if (size == 0) return 0;
  copy_bytes(destination, stream.staging.get() + stream.begin, size);
  (void)consume(size);
  return size;
}

// Reads the payload directly to its destination. If the frame ends within this read, the same system call also reads
// the next header of this stream.
std::size_t TcpRecv::read_direct(std::byte* destination, std::size_t n) {
  const std::size_t wanted = std::min(n, frame_left_);
  if (wanted < kDirectBytes || !status_.is_ok()) return 0;
  Stream& stream = current();
  stream.begin = stream.end = 0;
  const std::size_t next = wanted == frame_left_ ? kHeaderBytes : 0;
  std::byte* const staging = stream.staging.get();
  const ssize_t result = kept_ == nullptr ? stream.bytes->recv(destination, wanted, staging, next)
                                          : kept_->read(stream.index, destination, wanted, staging, next);
  if (!arrived(result)) return 0;
  const std::size_t payload = std::min(static_cast<std::size_t>(result), wanted);
  stream.end = static_cast<std::size_t>(result) - payload;
  frame_left_ -= payload;
  if (frame_left_ == 0) ++frame_number_;
  return payload;
}

Status TcpRecv::status() {
  const std::int64_t now = now_ns();
  if (kept_ != nullptr) return status_.is_ok() ? kept_->status(now) : status_;
  if (status_.is_ok() && silence_.gone(now)) status_ = lost_while(peer_, "receiving", ETIMEDOUT);
  return closed_ns_ == 0 || now - closed_ns_ > kEndedGraceNs ? status_ : Status::ok();
}

bool TcpRecv::arrived(ssize_t result) {
  if (result > 0) return true;
  if (result < 0 && is_temporary(errno)) return false;
  if (result == 0) closed_ns_ = now_ns();
  status_ = result == 0 ? closed_by(peer_) : lost_while(peer_, "receiving", errno);
  return false;
}

}  // namespace tutti::internal::transport::tcp
