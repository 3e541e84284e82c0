#include "monitor/listener.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/first_use.h"
#include "base/log.h"
#include "observe/reader.h"
#include "os/clock.h"
#include "os/fork.h"
#include "os/kernel.h"

namespace tutti::internal::monitor {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr char kLocalhost[] = "localhost";
constexpr int kQueue = 128;  // connections that wait; the system may allow fewer
constexpr std::int64_t kPauseMs = 1000;
// How often a process looks whether the path has a listener, and how long that one may take to answer.
constexpr std::int64_t kAttemptMs = 2000;
constexpr std::int64_t kAnswerMs = 3000;

// A forked child has copies of its parent's listeners. They would go on to exist after the parent has ended, and their
// connections would wait without limit.
class ListenersOfFork final : public ForkAware {
 public:
  ListenersOfFork() {
    for (auto& fd : fds_) fd.store(-1, std::memory_order_relaxed);
    enlist();
  }
  void before_fork() override {}
  void after_fork_in_parent() override {}
  void after_fork_in_child() override {
    for (auto& fd : fds_) {
      const int copy = fd.exchange(-1, std::memory_order_relaxed);
      if (copy >= 0) os::kernel().close(copy);
    }
  }
  // More than kMost are not closed in children.
  void add(int fd) {
    for (auto& slot : fds_) {
      int none = -1;
      if (slot.compare_exchange_strong(none, fd)) return;
    }
  }
  // Before the descriptor is closed: its number may get another use.
  void remove(int fd) {
    for (auto& slot : fds_) {
      int own = fd;
      if (slot.compare_exchange_strong(own, -1)) return;
    }
  }

 private:
  static constexpr std::size_t kMost = 32;
  std::array<std::atomic<int>, kMost> fds_;
};
constinit FirstUse<ListenersOfFork, Surplus::kKept> listeners_of_fork;

Status no_address(const std::string& text, const std::string& why) {
  return Status::invalid_usage(fmt::format("\"{}\" is not HOST:PORT, :PORT or unix:PATH{}", text, why));
}

// Connections of a former process of this address, and listeners of other processes, do not disturb. Returns 0 or
// errno.
int listen_beside_others(const net::Address& address, UniqueFd* listener) {
  UniqueFd opened(os::kernel().socket(address.family(), SOCK_STREAM));
  if (!opened.valid()) return errno;
  const int fd = opened.get();
  const int on = 1;
  os::kernel().setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  os::kernel().setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  if (address.family() == AF_INET6) os::kernel().setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (os::kernel().bind(fd, address.get(), address.length()) != 0) return errno;
  if (os::kernel().listen(fd, kQueue) != 0) return errno;
  *listener = std::move(opened);
  return 0;
}

// Whether a process that does not answer at a path has ended, or is one of a job: it may be stopped. Others use the
// path for something else.
bool may_replace(const ucred& peer) {
  if (peer.uid != ::geteuid() || peer.pid <= 0) return false;
  if (::kill(peer.pid, 0) != 0) return errno == ESRCH;
  return observe::read_process(peer.pid).is_ok();
}

}  // namespace

Result<ListenAddress> parse_listen_address(const std::string& text) {
  if (text.starts_with(kUnix)) {
    const std::string path = text.substr(kUnix.size());
    auto usable = net::Address::unix_path(path);
    if (!usable.is_ok()) return no_address(text, ": " + usable.status().message());
    return ListenAddress{"", 0, path};
  }
  auto parts = net::split_host_port(text.starts_with(':') ? kLocalhost + text : text);
  if (!parts.is_ok()) return no_address(text, "");
  if (parts->port == 0) return no_address(text, " with a port in 1..65535");
  return ListenAddress{parts->host, parts->port, ""};
}

Result<std::vector<net::Address>> addresses_of(const ListenAddress& address) {
  if (address.host.empty()) {
    auto path = net::Address::unix_path(address.path);
    if (!path.is_ok()) return path.status();
    return std::vector<net::Address>{*path};
  }
  if (address.host != kLocalhost) return net::resolve(address.host, address.port);
  std::vector<net::Address> both;
  for (const char* const loopback : {"127.0.0.1:1", "[::1]:1"}) {
    auto numeric = net::parse_address(loopback);
    if (numeric.is_ok()) both.push_back(numeric->with_port(address.port));
  }
  return both;
}

Result<Listener> Listener::open(const std::string& text, const std::string& greeting) {
  auto address = parse_listen_address(text);
  if (!address.is_ok()) return address.status();
  Listener made;
  made.greeting_ = greeting;
  made.path_ = address->path;
  if (!made.path_.empty()) {
    if (Status s = made.attend_path(); !s.is_ok()) return s;
    return made;
  }
  auto addresses = addresses_of(*address);
  if (!addresses.is_ok()) return addresses.status();
  if (Status s = made.listen_at(*addresses); !s.is_ok()) return s;
  return made;
}

// A host may lack one of the two families.
Status Listener::listen_at(const std::vector<net::Address>& addresses) {
  Status first;
  for (const net::Address& address : addresses) {
    UniqueFd listener;
    const int error = listen_beside_others(address, &listener);
    if (error == 0) {
      add(std::move(listener));
      continue;
    }
    const std::string_view why = error == EADDRINUSE ? " (another program, or another user's, listens there)" : "";
    const Status failed = Status::system(fmt::format("listening at {}{}", address.text(), why), error);
    if (error == EADDRINUSE) return failed;
    if (first.is_ok()) first = failed;
  }
  return sockets_.empty() ? first : Status();
}

void Listener::add(UniqueFd fd) {
  listeners_of_fork.get().add(fd.get());
  sockets_.push_back({std::move(fd), 0, false});
}

void Listener::close_sockets() {
  for (const Socket& socket : sockets_) {
    if (socket.fd.valid()) listeners_of_fork.get().remove(socket.fd.get());
  }
  if (!sockets_.empty() && !path_.empty() && has_path()) ::unlink(path_.c_str());
  sockets_.clear();
}

bool Listener::has_path() const {
  struct stat file {};
  return ::lstat(path_.c_str(), &file) == 0 && file.st_ino == inode_;
}

Status Listener::attend_path() {
  if (now_ns() < next_attempt_ns_) return {};
  // Processes that have started together do not try together.
  next_attempt_ns_ = now_ns() + (kAttemptMs + os::kernel().getpid() % kAttemptMs) * kNsPerMs;
  if (!sockets_.empty()) {
    if (!has_path()) close_sockets();
    return {};
  }
  return trial_.fd.valid() ? Status() : begin_trial();
}

Status Listener::begin_trial() {
  auto address = net::Address::unix_path(path_);
  if (!address.is_ok()) return address.status();
  auto fd = net::start_connect(*address);
  if (!fd.is_ok()) {
    // Its queue is full: it may answer later.
    if (fd.status().code() == Code::kInProgress) return {};
    struct stat file {};
    const bool is_free = ::lstat(path_.c_str(), &file) != 0 && errno == ENOENT;
    // Others than that and ECONNREFUSED, of a process that has ended, are errors of sockets in use, or of a shortage.
    if (is_free || fd.status().code() == Code::kRemoteError) return take_path();
    return fd.status().with_context("listening");
  }
  (void)os::kernel().send(fd->get(), greeting_.data(), greeting_.size());
  trial_ = {std::move(*fd), now_ns() + kAnswerMs * kNsPerMs, 0, false};
  return {};
}

// The process at the path does not answer.
Status Listener::end_trial() {
  ucred peer{};
  socklen_t length = sizeof peer;
  const bool known = os::kernel().getsockopt(trial_.fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
  trial_ = {};
  if (known && may_replace(peer)) return take_path();
  return Status::system(
      fmt::format("listening at {}, where process {} listens, which has no communicator", path_, peer.pid), EADDRINUSE);
}

// By renaming, so that of several processes that do this, the last one has the path, and all notice.
Status Listener::take_path() {
  trial_ = {};
  struct stat file {};
  if (::lstat(path_.c_str(), &file) == 0 && !S_ISSOCK(file.st_mode)) {
    return Status::system(fmt::format("listening at {}, which is not a socket", path_), EEXIST);
  }
  const std::string own = fmt::format("{}.{}", path_, os::kernel().getpid());
  auto address = net::Address::unix_path(own);
  if (!address.is_ok()) return address.status();
  net::remove_own_socket(own);
  auto fd = net::listen_unix(*address);
  if (!fd.is_ok()) return fd.status();
  if (::lstat(own.c_str(), &file) != 0 || std::rename(own.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(own.c_str());
    return Status::system("listening at " + path_, error);
  }
  inode_ = file.st_ino;
  add(std::move(*fd));
  return {};
}

void Listener::prepare(net::PollSet* set) {
  const std::int64_t now = now_ns();
  const auto wake_at = [&](std::int64_t when_ns) {
    set->wake_at(Deadline::after_ms(std::max<std::int64_t>(0, (when_ns - now + kNsPerMs - 1) / kNsPerMs)));
  };
  if (!path_.empty()) wake_at(next_attempt_ns_);
  trial_.polled = trial_.fd.valid();
  if (trial_.polled) {
    trial_.entry = set->add(trial_.fd.get(), POLLIN);
    wake_at(trial_.until_ns);
  }
  const bool paused = now < paused_until_ns_;
  if (paused) wake_at(paused_until_ns_);
  for (Socket& socket : sockets_) {
    socket.polled = !paused;
    if (socket.polled) socket.entry = set->add(socket.fd.get(), POLLIN);
  }
}

std::vector<UniqueFd> Listener::accept(const net::PollSet& set) {
  std::vector<UniqueFd> accepted;
  for (const Socket& socket : sockets_) {
    if (!socket.polled || set.ready(socket.entry) == 0) continue;
    for (int i = 0; i < kMostAtOnce; ++i) {
      auto fd = net::accept_one(socket.fd.get());
      if (!fd.is_ok()) paused_until_ns_ = now_ns() + kPauseMs * kNsPerMs;
      if (!fd.is_ok() || !fd->valid()) break;
      accepted.push_back(std::move(*fd));
    }
  }
  if (path_.empty()) return accepted;
  Status kept;
  if (trial_.fd.valid()) {
    std::array<char, 64> answer{};
    const bool heard = trial_.polled && set.ready(trial_.entry) != 0;
    if (heard && os::kernel().recv(trial_.fd.get(), answer.data(), answer.size()) > 0) {
      trial_ = {};
    } else if (heard || now_ns() >= trial_.until_ns) {
      kept = end_trial();
    }
  }
  if (kept.is_ok()) kept = attend_path();
  if (!kept.is_ok() && !std::exchange(has_warned_, true)) log::warn("the monitor: " + kept.message());
  return accepted;
}

}  // namespace tutti::internal::monitor
