#include "net/frame.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "net/socket.h"
#include "os/kernel.h"

namespace tutti::internal::net {
namespace {

// A claimed length is not trusted: memory grows as the bytes arrive, by at most this at a time.
constexpr std::size_t kGrowBytes = std::size_t{1} << 20;

std::uint32_t load_length(const unsigned char* head) {
  return static_cast<std::uint32_t>(head[0]) | static_cast<std::uint32_t>(head[1]) << 8 |
         static_cast<std::uint32_t>(head[2]) << 16 | static_cast<std::uint32_t>(head[3]) << 24;
}

std::string with_length(const std::string& body) {
  Packer packer;
  packer.text(body);
  return packer.bytes();
}

}  // namespace

Result<FrameReader::Progress> FrameReader::read(ByteStream* stream) {
  for (;;) {
    const std::size_t length = in_body_ ? load_length(head_) : sizeof head_;
    if (in_body_ && have_ == length) return Progress::kFrame;
    if (in_body_ && body_.size() == have_) body_.resize(std::min(length, have_ + kGrowBytes));
    const std::size_t room = (in_body_ ? body_.size() : length) - have_;
    void* target = in_body_ ? static_cast<void*>(body_.data() + have_) : static_cast<void*>(head_ + have_);
    const ssize_t got = stream->recv(target, room);
    if (got == 0) return Progress::kClosed;
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Progress::kBlocked;
      if (errno == ECONNRESET || errno == EPIPE || errno == ETIMEDOUT) return Progress::kClosed;
      return Status::system("recv", errno);
    }
    have_ += static_cast<std::size_t>(got);
    if (in_body_ || have_ < sizeof head_) continue;
    if (load_length(head_) > max_bytes_)
      return Status::remote("protocol error: the peer sent a message that is too long");
    in_body_ = true;
    have_ = 0;
  }
}

std::string FrameReader::take() {
  in_body_ = false;
  have_ = 0;
  std::string result;
  result.swap(body_);
  return result;
}

void FrameWriter::queue(const std::string& body) {
  if (empty()) {
    bytes_.clear();
    sent_ = 0;
  }
  bytes_ += with_length(body);
}

Status FrameWriter::flush(ByteStream* stream) {
  while (!empty()) {
    const ssize_t sent = stream->send(bytes_.data() + sent_, bytes_.size() - sent_);
    if (sent >= 0) {
      sent_ += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return {};
    } else if (errno != EINTR) {
      return Status::remote(fmt::format("connection lost: {}", std::strerror(errno)));
    }
  }
  return {};
}

Status send_frame(ByteStream* stream, const std::string& body, Deadline deadline) {
  FrameWriter writer;
  writer.queue(body);
  for (;;) {
    if (Status s = writer.flush(stream); !s.is_ok() || writer.empty()) return s;
    if (deadline.passed()) return Status::timeout("timed out while sending a message");
    PollSet set;
    set.clear(1000);
    set.add(*stream, POLLOUT);
    set.wake_at(deadline);
    if (Status s = set.wait(); !s.is_ok()) return s;
  }
}

Result<std::string> recv_frame(ByteStream* stream, std::size_t max_bytes, Deadline deadline) {
  FrameReader reader(max_bytes);
  for (;;) {
    Result<FrameReader::Progress> progress = reader.read(stream);
    if (!progress.is_ok()) return progress.status();
    if (*progress == FrameReader::Progress::kFrame) return reader.take();
    if (*progress == FrameReader::Progress::kClosed) return Status::remote("the peer closed the connection");
    if (deadline.passed()) return Status::timeout("timed out while waiting for a message");
    PollSet set;
    set.clear(1000);
    set.add(*stream, POLLIN);
    set.wake_at(deadline);
    if (Status s = set.wait(); !s.is_ok()) return s;
  }
}

void Unpacker::raw(void* data, std::size_t size) {
  if (!has(size)) return;
  std::memcpy(data, bytes_.data() + at_, size);
  at_ += size;
}

}  // namespace tutti::internal::net
