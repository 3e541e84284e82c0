#include "transport/tcp/link.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "net/socket.h"
#include "transport/plain.h"
#include "transport/tcp/recv.h"
#include "transport/tcp/send.h"

namespace tutti::internal::transport::tcp {
namespace {

// The pieces in which the executor hands data over: they stay in the cache between recv(2) and their
// use, and cost one system call each.
constexpr std::size_t kPieceBytes = 128 * 1024;

std::vector<int> raw(const std::vector<UniqueFd>& streams) {
  std::vector<int> fds;
  fds.reserve(streams.size());
  for (const UniqueFd& stream : streams) fds.push_back(stream.get());
  return fds;
}

LaneTraits make_traits() {
  LaneTraits traits;
  traits.transport = "tcp";
  traits.pulls = true;
  traits.piece_bytes = kPieceBytes;
  return traits;
}

// Waiting. All streams hang edge-triggered in one epoll descriptor, which is itself what the caller
// waits on: it becomes readable on the next arrival, on the next room after a full buffer, and on a
// hang-up, but not because of old data that the caller does not want yet. The streams are added on the
// first arm(), so a rank that only ever spins does not pay for it.
class TcpLink final : public PlainLink {
 public:
  TcpLink(std::vector<UniqueFd> streams, UniqueFd epoll, const Options& options)
      : streams_(std::move(streams)),
        epoll_(std::move(epoll)),
        send_(raw(streams_), options, make_traits()),
        recv_(raw(streams_), options, make_traits()) {}

  // What a connection that has failed still holds may never be acknowledged.
  ~TcpLink() override {
    for (const UniqueFd& stream : streams_) net::limit_lost_bytes(stream.get());
  }
  TcpLink(const TcpLink&) = delete;
  TcpLink& operator=(const TcpLink&) = delete;

  SendLane& send() override { return send_; }
  RecvLane& recv() override { return recv_; }

  bool arm() override {
    if (!watching_) {
      watch();
      return false;  // the streams' state so far counts as activity
    }
    return take_edges() == 0;
  }
  // The caller looks at the streams before it arms again.
  void disarm() override { (void)take_edges(); }
  [[nodiscard]] int wait_fd() const override { return epoll_.get(); }
  [[nodiscard]] bool sent() override {
    return std::all_of(streams_.begin(), streams_.end(), [](const UniqueFd& stream) {
      int unsent = 0;
      return ::ioctl(stream.get(), SIOCOUTQNSD, &unsent) != 0 || unsent == 0;
    });
  }
  // The end of a stream is acknowledged at once, and with it what came before; other acknowledgements the peer's kernel
  // holds back, for up to 40 ms, as long as the peer sends nothing itself.
  void end_sending() noexcept override {
    for (const UniqueFd& stream : streams_) {
      net::end_silence_watch(stream.get());
      (void)::shutdown(stream.get(), SHUT_WR);
    }
  }
  // What the peer's kernel has acknowledged is the peer's. A broken connection delivers nothing more.
  bool flushed() override {
    return std::all_of(streams_.begin(), streams_.end(), [](const UniqueFd& stream) {
      int unacknowledged = 0;
      return ::ioctl(stream.get(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
    });
  }

  // What has been sent still arrives.
  void revoke() noexcept override { end_sending(); }

 private:
  // Taking the edges that are already there is what makes the next one wake us.
  int take_edges() {
    std::array<epoll_event, kMaxStreams> edges;
    return ::epoll_wait(epoll_.get(), edges.data(), static_cast<int>(edges.size()), 0);
  }
  // If the kernel refuses (it is short of memory), arm() tries again next time and the caller spins on.
  void watch() {
    for (const UniqueFd& stream : streams_) {
      epoll_event event{};
      event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
      if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream.get(), &event) != 0 && errno != EEXIST) return;
    }
    watching_ = true;
  }

  std::vector<UniqueFd> streams_;
  UniqueFd epoll_;
  TcpSend send_;
  TcpRecv recv_;
  bool watching_ = false;
};

Status prepare(int fd, const Options& options) {
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

}  // namespace

Result<std::unique_ptr<Link>> make_link(std::vector<UniqueFd> streams, Options options) {
  if (streams.empty() || streams.size() > kMaxStreams) {
    return Status::invalid_argument(fmt::format("a tcp link has 1 to {} streams, not {}", kMaxStreams, streams.size()));
  }
  for (const UniqueFd& stream : streams) {
    if (Status status = prepare(stream.get(), options); !status.is_ok()) {
      return status.with_context(fmt::format("tcp link to rank {}", options.peer));
    }
  }
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return Status::system("epoll_create1", errno);
  return std::unique_ptr<Link>(std::make_unique<TcpLink>(std::move(streams), std::move(epoll), options));
}

}  // namespace tutti::internal::transport::tcp
