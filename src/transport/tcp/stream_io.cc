#include "transport/tcp/stream_io.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "transport/tcp/frame.h"

namespace tutti::internal::transport::tcp {
namespace {

// Up to this size a copy behind the header is cheaper than a second entry in the kernel's vector.
constexpr std::size_t kInlineBytes = 1024;

}  // namespace

bool is_temporary(int error_number) {
  return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR || error_number == ENOBUFS;
}

ssize_t write_stream(int fd, const std::byte* head, std::size_t head_bytes, const std::byte* payload, std::size_t n) {
  if (head_bytes == 0) return ::send(fd, payload, n, MSG_DONTWAIT | MSG_NOSIGNAL);
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

ssize_t read_stream(int fd, std::byte* destination, std::size_t n, std::byte* behind, std::size_t more) {
  if (more == 0) return ::recv(fd, destination, n, MSG_DONTWAIT);
  std::array<iovec, 2> parts{{{destination, n}, {behind, more}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return ::recvmsg(fd, &message, MSG_DONTWAIT);
}

Status lost_while(int peer, std::string_view doing, int error_number) {
  return Status::remote(fmt::format("rank {}: tcp connection lost while {}: {}", peer, doing,
                                    std::system_category().message(error_number)));
}

Status closed_by(int peer) {
  return Status::remote(fmt::format("rank {}: tcp connection closed by the peer", peer));
}

}  // namespace tutti::internal::transport::tcp
