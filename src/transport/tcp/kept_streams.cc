#include "transport/tcp/kept_streams.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/copy.h"
#include "base/event_fd.h"
#include "net/socket.h"
#include "os/clock.h"
#include "transport/tcp/stream_errors.h"

namespace tutti::internal::transport::tcp {
namespace {

constexpr std::size_t kFetchBytes = std::size_t{64} * 1024;

ssize_t try_later() {
  errno = EAGAIN;
  return -1;
}

// A dead socket does not say which bytes were acknowledged. The kernel's states of a connection: <netinet/tcp.h>.
bool is_dead(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_state == TCP_CLOSE;
}

int error_of(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

}  // namespace

KeptStreams::KeptStreams(std::vector<net::ByteStream> streams, const Options& options)
    : options_(options), count_(streams.size()), streams_(streams.size()) {
  for (std::size_t i = 0; i < count_; ++i) streams_[i].bytes = std::move(streams[i]);
}

Status KeptStreams::begin() {
  const Reconnect& reconnect = *options_.reconnect;
  Status status = reconnect.reconnector->add(this, reconnect.peer, *reconnect.failure, reconnect.limit_ms);
  begun_ = status.is_ok();
  return status;
}

KeptStreams::~KeptStreams() {
  if (begun_) options_.reconnect->reconnector->remove(this);
  const MutexLock lock(mutex_);
  for (const Stream& stream : streams_) net::limit_lost_bytes(stream.bytes.get());
}

// ---- For the lanes --------------------------------------------------------------------------------

void KeptStreams::break_stream(Stream* stream, State state, Status cause) {
  if (stream->state != State::kWhole && !(stream->state == State::kEnded && state == State::kBroken)) return;
  if (stream->state == State::kWhole) {
    stream->since_ns = now_ns();
    stream->cause = std::move(cause);
  }
  stream->state = state;
  options_.reconnect->reconnector->notice();
}

bool KeptStreams::release(Stream* stream) {
  const std::optional<std::size_t> undelivered = stream->bytes.undelivered();
  // Looks at the state last: a connection that lives now has lived before.
  if (!undelivered || is_dead(stream->bytes.get())) {
    break_stream(stream, State::kBroken, lost_while(options_.peer, "sending", error_of(stream->bytes.get())));
    return false;
  }
  // The connection's first bytes, which are not the stream's, may count as well.
  if (*undelivered <= stream->written) stream->ring.release(stream->written - *undelivered);
  return true;
}

std::size_t KeptStreams::room_for(Stream* stream, std::size_t n) {
  if (stream->ring.room() >= n) [[likely]]
    return n;
  if (!release(stream)) return 0;
  if (stream->ring.room() < n) stream->ring.grow(n);
  return std::min(stream->ring.room(), n);
}

bool KeptStreams::send_again(Stream* stream) {
  while (stream->written < stream->ring.end()) {
    const std::span<const std::byte> piece = stream->ring.piece(stream->written);
    const ssize_t sent = stream->bytes.send(piece.data(), piece.size());
    if (sent < 0 && !is_temporary(errno)) {
      break_stream(stream, State::kBroken, lost_while(options_.peer, "sending", errno));
    }
    if (sent < 0) return false;
    stream->written += static_cast<std::size_t>(sent);
  }
  return true;
}

ssize_t KeptStreams::write(std::size_t index, const std::byte* head, std::size_t head_bytes, const std::byte* payload,
                           std::size_t n) {
  const MutexLock lock(mutex_);
  Stream& stream = streams_[index];
  if (stream.state != State::kWhole || !send_again(&stream)) return try_later();
  const std::size_t room = room_for(&stream, head_bytes + n);
  stream.lacks_room = room <= head_bytes;
  if (stream.lacks_room) return try_later();
  const ssize_t sent = stream.bytes.send(head, head_bytes, payload, std::min(n, room - head_bytes));
  if (sent < 0) {
    if (is_temporary(errno)) return sent;
    break_stream(&stream, State::kBroken, lost_while(options_.peer, "sending", errno));
    return try_later();
  }
  const auto took = static_cast<std::size_t>(sent);
  const std::size_t head_took = std::min(took, head_bytes);
  stream.ring.append(head, head_took);
  stream.ring.append(payload, took - head_took);
  stream.written = stream.ring.end();
  return sent;
}

ssize_t KeptStreams::read(std::size_t index, std::byte* destination, std::size_t n, std::byte* behind,
                          std::size_t more) {
  const MutexLock lock(mutex_);
  Stream& stream = streams_[index];
  if (const std::size_t unread = stream.unread.size() - stream.unread_begin; unread > 0) [[unlikely]] {
    const std::byte* const from = stream.unread.data() + stream.unread_begin;
    const std::size_t first = std::min(n, unread);
    const std::size_t second = std::min(more, unread - first);
    copy_bytes(destination, from, first);
    copy_bytes(behind, from + first, second);
    stream.unread_begin += first + second;
    if (stream.unread_begin == stream.unread.size()) {
      stream.unread = {};
      stream.unread_begin = 0;
    }
    return static_cast<ssize_t>(first + second);
  }
  if (stream.stopped) return try_later();
  const ssize_t got = stream.bytes.recv(destination, n, behind, more);
  if (got > 0) {
    stream.received += static_cast<std::size_t>(got);
    return got;
  }
  if (got < 0 && is_temporary(errno)) return got;
  if (got == 0) {
    break_stream(&stream, State::kEnded, closed_by(options_.peer));
  } else {
    break_stream(&stream, State::kBroken, lost_while(options_.peer, "receiving", errno));
  }
  return try_later();
}

Status KeptStreams::status(std::int64_t now) {
  const MutexLock lock(mutex_);
  look_for_silence(now);
  const auto failed =
      std::find_if(streams_.begin(), streams_.end(), [](const Stream& stream) { return stream.failed; });
  return failed == streams_.end() ? Status() : failed->cause;
}

void KeptStreams::look_for_silence(std::int64_t now) {
  if (options_.silence_ms == 0 || now < next_look_ns_) return;
  next_look_ns_ = now + net::silence_look_ms(options_.silence_ms) * kNsPerMs;
  for (Stream& stream : streams_) {
    if (stream.state != State::kWhole || !net::is_silent(stream.bytes.get(), options_.silence_ms)) continue;
    break_stream(&stream, State::kBroken, lost_while(options_.peer, "receiving", ETIMEDOUT));
  }
}

// ---- For the link ---------------------------------------------------------------------------------

bool KeptStreams::arm(std::vector<int>* fds, bool* changed) {
  const MutexLock lock(mutex_);
  bool quiet = true;
  *changed = false;
  for (std::size_t i = 0; i < count_; ++i) {
    Stream& stream = streams_[i];
    quiet = quiet && !(stream.lacks_room && stream.state == State::kWhole);
    if (!stream.retired.valid()) continue;
    (*fds)[i] = stream.bytes.get();
    stream.retired.reset();
    *changed = true;
  }
  return quiet && !*changed;
}

// After its leave notice a peer expects nothing more, and ends its connections.
bool KeptStreams::is_done(const Stream& stream) const {
  if (stream.failed || over_) return true;
  const Reconnect& reconnect = *options_.reconnect;
  return stream.state != State::kWhole && reconnect.failure->any_departed() &&
         reconnect.failure->departed(reconnect.peer.rank);
}

// If only the peer has ended its side, its kernel still acknowledges what was written before.
bool KeptStreams::kernel_has_all(Stream* stream) {
  if (stream->state == State::kWhole) return send_again(stream);
  return stream->state == State::kEnded && stream->written == stream->ring.end();
}

bool KeptStreams::is_sent(Stream* stream) {
  if (is_done(*stream)) return true;
  if (!kernel_has_all(stream)) return false;
  return stream->bytes.unsent() == 0;
}

bool KeptStreams::is_flushed(Stream* stream) {
  if (is_done(*stream)) return true;
  if (!kernel_has_all(stream) || !release(stream)) return false;
  return stream->ring.begin() == stream->ring.end();
}

bool KeptStreams::sent() {
  const MutexLock lock(mutex_);
  return std::all_of(streams_.begin(), streams_.end(), [this](Stream& stream) {
    mutex_.assert_held();
    return is_sent(&stream);
  });
}

bool KeptStreams::flushed() {
  const MutexLock lock(mutex_);
  return std::all_of(streams_.begin(), streams_.end(), [this](Stream& stream) {
    mutex_.assert_held();
    return is_flushed(&stream);
  });
}

void KeptStreams::leave() noexcept {
  const MutexLock lock(mutex_);
  over_ = true;
  for (const Stream& stream : streams_) net::end_silence_watch(stream.bytes.get());
}

void KeptStreams::revoke() noexcept {
  const MutexLock lock(mutex_);
  over_ = true;
  for (const Stream& stream : streams_) {
    net::end_silence_watch(stream.bytes.get());
    (void)::shutdown(stream.bytes.get(), SHUT_WR);
  }
}

// ---- For the reconnector --------------------------------------------------------------------------

int KeptStreams::socket(std::size_t index) const {
  const MutexLock lock(mutex_);
  return streams_[index].bytes.get();
}

ReconnectingLink::Condition KeptStreams::condition(std::size_t index) const {
  const MutexLock lock(mutex_);
  const Stream& stream = streams_[index];
  return {over_ || stream.failed ? State::kOver : stream.state, stream.since_ns};
}

void KeptStreams::note_end(std::size_t index, bool both_directions) {
  const MutexLock lock(mutex_);
  Stream& stream = streams_[index];
  if (!both_directions) return break_stream(&stream, State::kEnded, closed_by(options_.peer));
  const int error = stream.state == State::kWhole ? error_of(stream.bytes.get()) : 0;
  break_stream(&stream, State::kBroken,
               error == 0 ? closed_by(options_.peer) : lost_while(options_.peer, "receiving", error));
}

std::uint64_t KeptStreams::stop(std::size_t index) {
  const MutexLock lock(mutex_);
  Stream& stream = streams_[index];
  break_stream(&stream, State::kBroken, closed_by(options_.peer));
  if (!std::exchange(stream.stopped, true)) fetch_rest(&stream);
  EventFd::ring(options_.reconnect->wakeup_fd);
  return stream.received;
}

// After shutdown(2) the kernel acknowledges nothing more: what it has acknowledged, which the peer does not keep, is
// read here.
void KeptStreams::fetch_rest(Stream* stream) {
  (void)::shutdown(stream->bytes.get(), SHUT_RDWR);
  std::vector<std::byte>& unread = stream->unread;
  std::size_t size = unread.size();
  try {
    for (;;) {
      unread.resize(size + kFetchBytes);
      const ssize_t got = stream->bytes.recv(unread.data() + size, kFetchBytes);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      size += static_cast<std::size_t>(got);
      stream->received += static_cast<std::size_t>(got);
    }
  } catch (...) {
    stream->failed = true;
    stream->cause = Status::of_exception();
  }
  unread.resize(size);
}

Result<std::uint64_t> KeptStreams::resume(std::size_t index, net::ByteStream made, std::uint64_t received) {
  const MutexLock lock(mutex_);
  Stream& stream = streams_[index];
  if (received < stream.ring.begin() || received > stream.ring.end()) {
    return Status::internal("protocol error: the peer has received more, or less, than was sent");
  }
  if (Status s = prepare_stream(made.get(), options_); !s.is_ok()) return s;
  if (!stream.retired.valid()) stream.retired = stream.bytes.release();
  stream.bytes = std::move(made);
  stream.ring.release(received);
  stream.written = received;
  stream.state = State::kWhole;
  stream.stopped = false;
  stream.lacks_room = false;
  if (over_) {
    (void)::shutdown(stream.bytes.get(), SHUT_WR);
  } else {
    reconnects_.fetch_add(1, std::memory_order_relaxed);
  }
  EventFd::ring(options_.reconnect->wakeup_fd);
  return stream.ring.end() - received;
}

bool KeptStreams::resend(std::size_t index) {
  const MutexLock lock(mutex_);
  Stream& stream = streams_[index];
  return stream.state != State::kWhole || send_again(&stream) || stream.state != State::kWhole;
}

void KeptStreams::give_up(std::size_t index, const std::string& why) {
  const MutexLock lock(mutex_);
  Stream& stream = streams_[index];
  stream.failed = true;
  stream.cause = Status(stream.cause.code(), stream.cause.message() + ", and could not be made anew" + why);
  EventFd::ring(options_.reconnect->wakeup_fd);
}

}  // namespace tutti::internal::transport::tcp
