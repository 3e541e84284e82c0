#include "net/byte_stream.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "net/kernel_tls.h"
#include "os/kernel.h"

namespace tutti::internal::net {
namespace {

// Up to this size a copy behind the head is cheaper than a second entry in the kernel's vector.
constexpr std::size_t kInlineBytes = 1024;

}  // namespace

Status ByteStream::encrypt(const TrafficSecrets& secrets) {
  Result<bool> begun = begin_kernel_tls(socket_.get(), secrets);
  if (!begun.is_ok()) return begun.status();
  kernel_encrypts_ = *begun;
  if (kernel_encrypts_) return {};
  auto records = RecordStream::make(secrets);
  if (!records.is_ok()) return records.status();
  records_ = std::move(*records);
  return {};
}

ssize_t ByteStream::send(const void* data, std::size_t n) {
  if (records_ != nullptr) return records_->send(socket_.get(), nullptr, 0, static_cast<const std::byte*>(data), n);
  return os::kernel().send(socket_.get(), data, n);
}

ssize_t ByteStream::send(const std::byte* head, std::size_t head_bytes, const std::byte* payload, std::size_t n) {
  if (records_ != nullptr) return records_->send(socket_.get(), head, head_bytes, payload, n);
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
  if (records_ != nullptr) return records_->recv(socket_.get(), static_cast<std::byte*>(data), n, nullptr, 0);
  return os::kernel().recv(socket_.get(), data, n);
}

ssize_t ByteStream::recv(std::byte* destination, std::size_t n, std::byte* behind, std::size_t more) {
  if (records_ != nullptr) return records_->recv(socket_.get(), destination, n, behind, more);
  if (more == 0) return recv(destination, n);
  std::array<iovec, 2> parts{{{destination, n}, {behind, more}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return os::kernel().recvmsg(socket_.get(), &message);
}

std::optional<std::size_t> ByteStream::unsent() const {
  int bytes = 0;
  if (::ioctl(socket_.get(), SIOCOUTQNSD, &bytes) != 0) return {};
  return static_cast<std::size_t>(bytes) + (records_ != nullptr ? records_->unsent() : 0);
}

std::optional<std::size_t> ByteStream::undelivered() const {
  int bytes = 0;
  if (::ioctl(socket_.get(), SIOCOUTQ, &bytes) != 0) return {};
  const std::size_t all = static_cast<std::size_t>(bytes) + (records_ != nullptr ? records_->unsent() : 0);
  return all == 0 || !encrypted() ? all : all + kMostRecordPayload;
}

}  // namespace tutti::internal::net
