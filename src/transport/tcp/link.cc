#include "transport/tcp/link.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "net/socket.h"
#include "transport/plain.h"
#include "transport/tcp/kept_streams.h"
#include "transport/tcp/recv.h"
#include "transport/tcp/send.h"

namespace tutti::internal::transport::tcp {
namespace {

// The pieces of the executor: they stay in the cache between recv(2) and their use, and cost one system call each.
constexpr std::size_t kPieceBytes = 128 * 1024;

std::vector<int> raw(const std::vector<net::ByteStream>& streams) {
  std::vector<int> fds;
  fds.reserve(streams.size());
  for (const net::ByteStream& stream : streams) fds.push_back(stream.get());
  return fds;
}

LaneTraits make_traits() {
  LaneTraits traits;
  traits.transport = "tcp";
  traits.pulls = true;
  traits.piece_bytes = kPieceBytes;
  return traits;
}

// A sleeping thread has the streams themselves in its EventSet; old data that the caller does not want yet gives no new
// event.
class TcpLink final : public PlainLink {
 public:
  // Has the streams itself, or they are kept.
  TcpLink(std::vector<int> fds, std::vector<net::ByteStream> streams, std::unique_ptr<KeptStreams> kept,
          const Options& options)
      : fds_(std::move(fds)),
        kept_(std::move(kept)),
        streams_(std::move(streams)),
        send_(streams_, fds_, kept_.get(), options, make_traits()),
        recv_(streams_, fds_, kept_.get(), options, make_traits()) {}

  // Data of a failed connection may never be acknowledged.
  ~TcpLink() override {
    for (const net::ByteStream& stream : streams_) net::limit_lost_bytes(stream.get());
  }
  TcpLink(const TcpLink&) = delete;
  TcpLink& operator=(const TcpLink&) = delete;

  SendLane& send() override { return send_; }
  RecvLane& recv() override { return recv_; }

  // Earlier events are reported by the set.
  bool arm() override {
    if (kept_ == nullptr) [[likely]]
      return true;
    bool changed = false;
    const bool quiet = kept_->arm(&fds_, &changed);
    if (changed) forget_watch();
    return quiet;
  }
  void disarm() override {}
  [[nodiscard]] std::span<const int> wait_fds() const override { return fds_; }
  [[nodiscard]] bool sent() override {
    if (kept_ != nullptr) return kept_->sent();
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const net::ByteStream& stream) { return stream.unsent().value_or(0) == 0; });
  }
  [[nodiscard]] std::uint64_t reconnects() const override { return kept_ != nullptr ? kept_->reconnects() : 0; }
  // The peer's kernel acknowledges the end of a stream, and everything before it, at once. It delays other
  // acknowledgements by up to 40 ms as long as the peer sends nothing. A stream that is made anew has no end before
  // this rank leaves: the peer could not tell it from a break.
  void end_sending() noexcept override {
    for (const net::ByteStream& stream : streams_) {
      net::end_silence_watch(stream.get());
      (void)::shutdown(stream.get(), SHUT_WR);
    }
  }
  // Acknowledged bytes are delivered. A broken connection delivers nothing more.
  bool flushed() override {
    if (kept_ != nullptr) return kept_->flushed();
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const net::ByteStream& stream) { return stream.undelivered().value_or(0) == 0; });
  }
  void send_leave_notice() override {
    if (kept_ != nullptr) kept_->leave();
  }

  // Sent data still arrives.
  void revoke() noexcept override {
    if (kept_ != nullptr) kept_->revoke();
    end_sending();
  }

 private:
  std::vector<int> fds_;
  const std::unique_ptr<KeptStreams> kept_;  // null: streams are not made anew
  std::vector<net::ByteStream> streams_;     // none if they are kept
  TcpSend send_;
  TcpRecv recv_;
};

}  // namespace

Status prepare_stream(int fd, const Options& options) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return Status::system("fcntl of a stream", errno);
  const int on = 1;
  if (::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 && errno != EOPNOTSUPP) {
    return Status::system("TCP_NODELAY of a stream", errno);  // EOPNOTSUPP: a Unix socket, which has no Nagle
  }
  const int bytes = options.socket_buffer_bytes;
  if (bytes > 0 && (::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) != 0 ||
                    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) != 0)) {
    return Status::system("buffer size of a stream", errno);
  }
  return Status::ok();
}

Result<std::unique_ptr<Link>> make_link(std::vector<net::ByteStream> streams, Options options) {
  if (streams.empty() || streams.size() > kMaxStreams) {
    return Status::invalid_argument(fmt::format("a tcp link has 1 to {} streams, not {}", kMaxStreams, streams.size()));
  }
  for (const net::ByteStream& stream : streams) {
    if (Status status = prepare_stream(stream.get(), options); !status.is_ok()) {
      return status.with_context(fmt::format("tcp link to rank {}", options.peer));
    }
  }
  std::vector<int> fds = raw(streams);
  std::unique_ptr<KeptStreams> kept;
  if (options.reconnect) {
    kept = std::make_unique<KeptStreams>(std::exchange(streams, {}), options);
    if (Status status = kept->begin(); !status.is_ok()) return status;
  }
  return std::unique_ptr<Link>(std::make_unique<TcpLink>(std::move(fds), std::move(streams), std::move(kept), options));
}

}  // namespace tutti::internal::transport::tcp
