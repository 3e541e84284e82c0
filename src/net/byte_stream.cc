#include "net/byte_stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "os/kernel.h"

namespace tutti::internal::net {
namespace {

// Up to this size a copy behind the head is cheaper than a second entry in the kernel's vector.
constexpr std::size_t kInlineBytes = 1024;

}  // namespace

ssize_t ByteStream::send(const void* data, std::size_t n) {
  return os::kernel().send(socket_.get(), data, n);
}

ssize_t ByteStream::send(const std::byte* head, std::size_t head_bytes, const std::byte* payload, std::size_t n) {
  if (head_bytes == 0) return send(payload, n);
  if (n <= kInlineBytes) {
    std::array<std::byte, kMostHeadBytes + kInlineBytes> packet;
    std::memcpy(packet.data(), head, head_bytes);
    std::memcpy(packet.data() + head_bytes, payload, n);
    return send(packet.data(), head_bytes + n);
  }
  // The kernel does not write through these pointers.
  std::array<iovec, 2> parts{{{const_cast<std::byte*>(head), head_bytes}, {const_cast<std::byte*>(payload), n}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t sent = os::kernel().sendmsg(socket_.get(), &message);
  const bool refused = sent < 0 && (errno == EPERM || errno == EACCES || errno == ENOSYS);  // by a filter of calls
  return refused ? send(head, head_bytes) : sent;
}

ssize_t ByteStream::recv(void* data, std::size_t n) {
  return os::kernel().recv(socket_.get(), data, n);
}

ssize_t ByteStream::recv(std::byte* destination, std::size_t n, std::byte* behind, std::size_t more) {
  if (more == 0) return recv(destination, n);
  std::array<iovec, 2> parts{{{destination, n}, {behind, more}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return os::kernel().recvmsg(socket_.get(), &message);
}

}  // namespace tutti::internal::net
