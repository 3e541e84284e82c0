#include "net/socket.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "os/kernel.h"

namespace tutti::internal::net {
namespace {

constexpr unsigned kNeverMs = 1U << 30;  // 12 days; the kernel's clock of milliseconds wraps after 49
constexpr unsigned kUnanswered = 3;      // repetitions, each after at least twice the time of the last one
constexpr int kLongestRto = 44;          // TCP_RTO_MAX_MS, of Linux 6.15; older headers lack it
constexpr int kBacklog = 4096;           // the kernel cuts it to net.core.somaxconn

// The time between two keepalive probes to an idle peer.
std::int64_t ask_period_ms(std::int64_t limit_ms) {
  return std::clamp<std::int64_t>(limit_ms / 10, 1000, 10'000);
}

// ENOMEM and ENOBUFS have a special meaning when a socket is made.
Status socket_error(const std::string& what, int error) {
  const bool memory = error == ENOMEM || error == ENOBUFS;
  return Status::system(what + (memory ? " (the kernel has no memory left for one: see the memory limit of the "
                                         "container and sysctl net.ipv4.tcp_mem)"
                                       : ""),
                        error);
}

// An error that the network has returned.
Status connect_error(const std::string& what, int error) {
  const Status status = socket_error(what, error);
  if (error == ECONNREFUSED) return status.with_code(Code::kRemoteError);
  return status.is_exhaustion() ? status : status.with_code(Code::kTimeout);
}

// An error that connect(2) has returned at once.
Status connect_failure(const Address& address, int error) {
  const std::string what = "connect to " + address.text();
  if (address.family() == AF_UNIX) return connect_error(what, error);  // the file's permissions can also refuse it
  const std::string advice = refusal_advice(error);
  if (!advice.empty()) return Status::system(what + advice, error);
  // For IPv4, EADDRNOTAVAIL means a lack of ports.
  const bool down =
      error == ENETUNREACH || error == ENETDOWN || (error == EADDRNOTAVAIL && address.family() == AF_INET6);
  if (down && address.is_loopback()) {
    return Status::system(what + " (is the loopback interface up? Set it up by: ip link set lo up)", error);
  }
  return connect_error(what, error);
}

Result<UniqueFd> open_stream_socket(int family) {
  UniqueFd fd(os::kernel().socket(family, SOCK_STREAM));
  if (fd.valid()) return fd;
  const int error = errno;
  return socket_error("opening a socket" + refusal_advice(error), error);
}

// Listens on the wildcard address of one family. Returns 0 or errno.
int listen_any(int family, int port, UniqueFd* listener) {
  UniqueFd opened(os::kernel().socket(family, SOCK_STREAM));
  if (!opened.valid()) return errno;
  const int fd = opened.get();
  // Restarting a job on a fixed port must not fail over connections of the last one in TIME_WAIT.
  const int on = 1;
  const int off = 0;
  os::kernel().setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  Address any;
  if (family == AF_INET6) {
    os::kernel().setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    any = Address(reinterpret_cast<sockaddr*>(&in6), sizeof in6);
  } else {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    any = Address(reinterpret_cast<sockaddr*>(&in), sizeof in);
  }
  any = any.with_port(static_cast<std::uint16_t>(port));
  if (os::kernel().bind(fd, any.get(), any.length()) != 0 || os::kernel().listen(fd, kBacklog) != 0) return errno;
  *listener = std::move(opened);
  return 0;
}

Status wait_for(int fd, short events, Deadline deadline, const char* what) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = os::kernel().poll(&entry, 1, deadline.left_ms(1000));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Status::system("poll", errno);
    if (deadline.passed()) return Status::timeout(fmt::format("timed out while {}", what));
  }
}

// The address of an IPv4 connection that a listener for both families has accepted, as IPv4.
Address without_mapping(const sockaddr_storage& storage, socklen_t length) {
  const Address address(reinterpret_cast<const sockaddr*>(&storage), length);
  if (address.family() != AF_INET6) return address;
  const auto* in6 = reinterpret_cast<const sockaddr_in6*>(address.get());
  if (!IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) return address;
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = in6->sin6_port;
  std::memcpy(&in.sin_addr, in6->sin6_addr.s6_addr + 12, sizeof in.sin_addr);
  return {reinterpret_cast<const sockaddr*>(&in), sizeof in};
}

}  // namespace

bool would_block(int error_number) {
  return error_number == EAGAIN || error_number == EWOULDBLOCK;
}

Result<UniqueFd> listen_tcp(int port_low, int port_high, const char* setting) {
  int error = 0;
  for (int port = port_low; port <= port_high; ++port) {
    UniqueFd listener;
    error = listen_any(AF_INET6, port, &listener);
    if (error == EAFNOSUPPORT || error == EADDRNOTAVAIL) error = listen_any(AF_INET, port, &listener);
    if (error == 0) return listener;
    if (error != EADDRINUSE && error != EACCES) break;
  }
  const bool one = port_low == port_high;
  const std::string ports = one ? std::to_string(port_low) : fmt::format("{}-{}", port_low, port_high);
  const std::string_view who =
      one ? "another process listens there; " : "all are in use, perhaps by ranks of this job; ";
  const std::string_view why = error == EADDRINUSE ? who : "";
  const bool choose = error == EADDRINUSE || error == EACCES;
  const std::string remedy = choose ? fmt::format(" ({}choose other ports with {})", why, setting) : "";
  return socket_error("cannot listen on TCP port " + ports + remedy, error);
}

Result<UniqueFd> listen_unix(const Address& address) {
  Result<UniqueFd> fd = open_stream_socket(AF_UNIX);
  if (!fd.is_ok()) return fd;
  if (os::kernel().bind(fd->get(), address.get(), address.length()) != 0)
    return Status::system("bind " + address.text(), errno);
  const bool by_path = reinterpret_cast<const sockaddr_un*>(address.get())->sun_path[0] != '\0';
  // No process can connect before listen(), so the wider mode until then is harmless.
  if (by_path && ::chmod(address.text().c_str(), 0600) != 0) return Status::system("chmod " + address.text(), errno);
  if (os::kernel().listen(fd->get(), kBacklog) != 0) return Status::system("listen " + address.text(), errno);
  return fd;
}

void remove_own_socket(const std::string& path) {
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0 || !S_ISSOCK(file.st_mode) || file.st_uid != ::geteuid()) return;
  ::unlink(path.c_str());
}

Result<Address> local_address(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (os::kernel().getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return Status::system("getsockname", errno);
  }
  return without_mapping(storage, length);
}

Result<Address> peer_address(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (os::kernel().getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return Status::system("getpeername", errno);
  }
  return without_mapping(storage, length);
}

Result<UniqueFd> accept_one(int listener) {
  UniqueFd fd(os::kernel().accept(listener));
  if (!fd.valid()) {
    const int error = errno;
    // Network errors belong to the connection that was about to be accepted: accept(2).
    const bool harmless = would_block(error) || error == EINTR || error == ECONNABORTED || error == EPROTO ||
                          error == ENETDOWN || error == EHOSTDOWN || error == EHOSTUNREACH || error == ENETUNREACH;
    if (harmless) return UniqueFd();
    return socket_error("accepting a connection" + refusal_advice(error), error);
  }
  set_no_delay(fd.get());
  return fd;
}

Result<UniqueFd> start_connect(const Address& address) {
  Result<UniqueFd> fd = open_stream_socket(address.family());
  if (!fd.is_ok()) return fd;
  set_no_delay(fd->get());
  if (os::kernel().connect(fd->get(), address.get(), address.length()) != 0 && errno != EINPROGRESS && errno != EINTR) {
    if (address.family() == AF_UNIX && errno == EAGAIN) return Status(Code::kInProgress, "the listener is busy");
    return connect_failure(address, errno);
  }
  return fd;
}

Status connect_result(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  if (os::kernel().poll(&entry, 1, 0) == 0) return {Code::kInProgress, "connecting"};
  int error = 0;
  socklen_t length = sizeof error;
  if (os::kernel().getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
    const int refused = errno;
    return Status::system("getsockopt" + refusal_advice(refused), refused);
  }
  if (error != 0) return connect_error("connect", error);
  return {};
}

std::string refusal_advice(int error_number) {
  const bool refused = error_number == EPERM || error_number == EACCES || error_number == ENOSYS;
  return refused ? " (the system refuses this process the call: see local packet filters, prohibited routes, the "
                   "seccomp profile of the container, SELinux, and AppArmor)"
                 : "";
}

void set_no_delay(int fd) {
  const int on = 1;
  os::kernel().setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void watch_silence(int fd, std::int64_t limit_ms) {
  const int on = 1;
  const int period_s = static_cast<int>(ask_period_ms(limit_ms) / 1000);
  os::kernel().setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  os::kernel().setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &period_s, sizeof period_s);
  os::kernel().setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &period_s, sizeof period_s);
  // With this option the kernel does not limit unanswered probes and retransmissions.
  os::kernel().setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kNeverMs, sizeof kNeverMs);
  // Otherwise detecting the end of an outage may take as long as the outage lasted. Older kernels refuse it.
  const int period_ms = period_s * 1000;
  os::kernel().setsockopt(fd, IPPROTO_TCP, kLongestRto, &period_ms, sizeof period_ms);
}

void end_silence_watch(int fd) {
  constexpr int kUsualMs = 120'000;  // the kernel's own TCP_RTO_MAX
  os::kernel().setsockopt(fd, IPPROTO_TCP, kLongestRto, &kUsualMs, sizeof kUsualMs);
}

void limit_lost_bytes(int fd) {
  constexpr unsigned kLostMs = 3'600'000;  // longer than the kernel waits for room after the close
  os::kernel().setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kLostMs, sizeof kLostMs);
}

bool is_silent(int fd, std::int64_t limit_ms) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (os::kernel().getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  const bool unanswered = info.tcpi_retransmits >= kUnanswered || info.tcpi_probes >= kUnanswered;
  // The last acknowledgement may be older than the outage by the time between two probes.
  return unanswered && info.tcpi_last_ack_recv >= limit_ms + ask_period_ms(limit_ms);
}

void set_unpaced_if_local(int fd) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_size = sizeof own;
  socklen_t peer_size = sizeof peer;
  if (os::kernel().getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      os::kernel().getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0 ||
      own.ss_family != peer.ss_family) {
    return;
  }
  const auto same = [&]<class T, class M>(T, M T::*address) {
    T a{};
    T b{};
    std::memcpy(&a, &own, sizeof a);
    std::memcpy(&b, &peer, sizeof b);
    return std::memcmp(&(a.*address), &(b.*address), sizeof(M)) == 0;
  };
  const bool local = own.ss_family == AF_INET    ? same(sockaddr_in{}, &sockaddr_in::sin_addr)
                     : own.ss_family == AF_INET6 ? same(sockaddr_in6{}, &sockaddr_in6::sin6_addr)
                                                 : false;
  static constexpr char kReno[] = "reno";  // in every kernel, and allowed to everybody
  if (local) os::kernel().setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno, sizeof kReno - 1);
}

Status PollSet::wait() {
  const int ready = os::kernel().poll(entries_.data(), entries_.size(), held_.empty() ? timeout_ms_ : 0);
  if (ready < 0) {
    for (pollfd& entry : entries_) entry.revents = 0;
    if (errno != EINTR) return Status::system("poll", errno);
  }
  for (const std::size_t entry : held_) entries_[entry].revents |= POLLIN;
  return {};
}

Status send_all(int socket, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = os::kernel().send(socket, bytes.data(), bytes.size());
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) return Status::remote("the peer closed the connection");
    if (!would_block(errno)) return Status::system("send", errno);
    if (Status s = wait_for(socket, POLLOUT, deadline, "sending"); !s.is_ok()) return s;
  }
  return {};
}

}  // namespace tutti::internal::net
