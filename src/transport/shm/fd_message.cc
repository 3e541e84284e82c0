#include "transport/shm/fd_message.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

namespace tutti::internal::transport::shm {
namespace {

union Control {
  cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int))];
};

}  // namespace

int send_with_fd(int socket, const void* message, std::size_t bytes, int fd) {
  iovec io{const_cast<void*>(message), bytes};
  msghdr header{};
  header.msg_iov = &io;
  header.msg_iovlen = 1;
  Control control{};
  if (fd >= 0) {
    header.msg_control = control.bytes;
    header.msg_controllen = sizeof control.bytes;
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  ssize_t n = 0;
  do {
    n = ::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno;
  return n == static_cast<ssize_t>(bytes) ? 0 : EMSGSIZE;
}

// ETOOMANYREFS: this user has as many descriptors in flight as it may open.
bool is_full(int error_number) {
  return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == ENOBUFS || error_number == ENOMEM ||
         error_number == ETOOMANYREFS;
}

Status try_passing(int fd) {
  int ends[2] = {-1, -1};
  // Ranks that share memory need no socket pair.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return {};
  const UniqueFd from(ends[0]);
  const UniqueFd to(ends[1]);
  char byte = 0;
  const int error = send_with_fd(from.get(), &byte, sizeof byte, fd);
  if (is_full(error)) return {};
  if (error != 0) return Status::system("passing a descriptor by sendmsg(2)", error);
  UniqueFd received;
  const ssize_t n = receive_with_fd(to.get(), &byte, sizeof byte, &received);
  if (n < 0) return Status::system("receiving a descriptor by recvmsg(2)", errno);
  if (received.valid()) return {};
  // The kernel does not say why it has not passed the descriptor: this process may not open more, or the transfer is
  // refused.
  const UniqueFd another(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  return Status::system("receiving a descriptor by recvmsg(2)", another.valid() ? EACCES : errno);
}

ssize_t receive_with_fd(int socket, void* message, std::size_t bytes, UniqueFd* fd) {
  iovec io{message, bytes};
  msghdr header{};
  header.msg_iov = &io;
  header.msg_iovlen = 1;
  Control control{};
  header.msg_control = control.bytes;
  header.msg_controllen = sizeof control.bytes;
  ssize_t n = 0;
  do {
    n = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n <= 0) return n;
  // The kernel received a descriptor for this process, but its table is full.
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    errno = EMFILE;
    return -1;
  }
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int received = -1;
    std::memcpy(&received, CMSG_DATA(c), sizeof received);
    *fd = UniqueFd(received);
  }
  return n;
}

}  // namespace tutti::internal::transport::shm
