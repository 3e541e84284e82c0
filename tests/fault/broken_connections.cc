#include "fault/broken_connections.h"

#include <dirent.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "os/unique_fd.h"

namespace tutti::internal::test {
namespace {

// The ranks' threads close these descriptors at any time. Raw system calls: for ThreadSanitizer that would be a race.
unsigned long inode_of(int fd) {
  struct stat status {};
  return ::syscall(SYS_newfstatat, fd, "", &status, 0x1000 /* AT_EMPTY_PATH */) == 0 ? status.st_ino : 0;
}

// Sockets of both families: an acceptor's is of IPv6, with IPv4 addresses in it.
bool connected_over_tcp(int fd) {
  int type = 0;
  int protocol = 0;
  socklen_t size = sizeof type;
  std::array<char, sizeof(sockaddr_storage)> name{};
  socklen_t name_size = sizeof(sockaddr_storage);
  return ::syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM &&
         ::syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP &&
         ::syscall(SYS_getpeername, fd, name.data(), &name_size) == 0;
}

std::vector<int> connected_sockets() {
  std::vector<int> result;
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) std::abort();
  while (const dirent* const entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && connected_over_tcp(fd)) result.push_back(fd);
  }
  ::closedir(folder);
  return result;
}

void put(const sockaddr_storage& address, __be32* ip, __be16* port) {
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    *ip = v4.sin_addr.s_addr;
    *port = v4.sin_port;
  } else {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    std::memcpy(ip, &v6.sin6_addr, sizeof v6.sin6_addr);
    *port = v6.sin6_port;
  }
}

// sock_diag(7): what `ss -K` does. 0, or the error.
int destroy(int fd) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_size = sizeof own;
  socklen_t peer_size = sizeof peer;
  if (::syscall(SYS_getsockname, fd, &own, &own_size) != 0 || ::syscall(SYS_getpeername, fd, &peer, &peer_size) != 0) {
    return errno;
  }
  struct {
    nlmsghdr header{};
    inet_diag_req_v2 request{};
  } message;
  message.header.nlmsg_len = sizeof message;
  message.header.nlmsg_type = SOCK_DESTROY;
  message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
  message.request.sdiag_family = static_cast<__u8>(own.ss_family);
  message.request.sdiag_protocol = IPPROTO_TCP;
  message.request.idiag_states = ~0U;
  message.request.id.idiag_cookie[0] = message.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  put(own, &message.request.id.idiag_src[0], &message.request.id.idiag_sport);
  put(peer, &message.request.id.idiag_dst[0], &message.request.id.idiag_dport);
  const UniqueFd netlink(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink.valid() || ::send(netlink.get(), &message, sizeof message, 0) < 0) return errno;
  std::array<char, 512> answer{};
  if (::recv(netlink.get(), answer.data(), answer.size(), 0) < static_cast<ssize_t>(sizeof(nlmsghdr) + sizeof(int))) {
    return EPROTO;
  }
  int error = 0;
  std::memcpy(&error, answer.data() + sizeof(nlmsghdr), sizeof error);
  return -error;
}

}  // namespace

Connections::Connections() {
  for (const int fd : connected_sockets()) others_.insert(inode_of(fd));
}

bool Connections::can(How how) {
  if (how == How::kEnd) return true;
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
  const UniqueFd dialler(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  return ::bind(listener.get(), name, size) == 0 && ::listen(listener.get(), 1) == 0 &&
         ::getsockname(listener.get(), name, &size) == 0 && ::connect(dialler.get(), name, size) == 0 &&
         destroy(dialler.get()) == 0;
}

std::vector<int> Connections::all() const {
  std::vector<int> result;
  for (const int fd : connected_sockets()) {
    const unsigned long inode = inode_of(fd);
    if (inode != 0 && others_.count(inode) == 0) result.push_back(fd);
  }
  return result;
}

void Connections::break_one(int fd, How how) {
  if (how == How::kReset) {
    (void)destroy(fd);
  } else {
    (void)::syscall(SYS_shutdown, fd, SHUT_RDWR);
  }
}

bool Connections::break_any(How how, std::minstd_rand& random) const {
  const std::vector<int> fds = all();
  if (fds.empty()) return false;
  break_one(fds[random() % fds.size()], how);
  return true;
}

void Connections::break_all(How how) const {
  for (const int fd : all()) break_one(fd, how);
}

}  // namespace tutti::internal::test
