// Messages over a stream: a length of 4 bytes (little endian), then the bytes. Reading takes exactly the frame,
// so that another part of the code can use the stream after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "net/byte_stream.h"
#include "os/clock.h"

namespace tutti::internal::net {

// Assembles one frame after the other from a stream.
class FrameReader {
 public:
  // Longer frames are refused: kRemoteError.
  explicit FrameReader(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  enum class Progress { kBlocked, kFrame, kClosed };
  // Reads the available bytes, up to one frame. kFrame: take() it. kClosed: the peer closed (or reset) the connection;
  // an incomplete frame is lost.
  Result<Progress> read(ByteStream* stream);
  std::string take();

 private:
  std::size_t max_bytes_;
  std::size_t have_ = 0;  // bytes of the length, then of the body
  bool in_body_ = false;
  unsigned char head_[4] = {};
  std::string body_;
};

// Queues frames and sends them as the stream accepts bytes.
class FrameWriter {
 public:
  void queue(const std::string& body);
  [[nodiscard]] bool empty() const { return sent_ == bytes_.size(); }
  // Sends the bytes that the stream accepts now. kRemoteError if the connection is closed.
  Status flush(ByteStream* stream);

 private:
  std::string bytes_;
  std::size_t sent_ = 0;
};

// One frame, waiting until the deadline. kRemoteError if the peer closes.
Status send_frame(ByteStream* stream, const std::string& body, Deadline deadline);
Result<std::string> recv_frame(ByteStream* stream, std::size_t max_bytes, Deadline deadline);

// Little-endian packing of frame bodies. Strings carry a length of 4 bytes.
class Packer {
 public:
  template <class T>
  Packer& number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
    }
    return *this;
  }
  Packer& text(const std::string& value) {
    number(static_cast<std::uint32_t>(value.size()));
    bytes_ += value;
    return *this;
  }
  Packer& raw(const void* data, std::size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
    return *this;
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// The reverse. Reading past the end returns zeros and makes ok() false permanently.
class Unpacker {
 public:
  explicit Unpacker(const std::string& bytes) : bytes_(bytes) {}
  template <class T>
  T number() {
    std::uint64_t value = 0;
    if (!has(sizeof(T))) return T{};
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value |= std::uint64_t{static_cast<unsigned char>(bytes_[at_ + i])} << (8 * i);
    }
    at_ += sizeof(T);
    return static_cast<T>(value);
  }
  std::string text() {
    const auto size = number<std::uint32_t>();
    if (!has(size)) return {};
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  void raw(void* data, std::size_t size);
  [[nodiscard]] bool ok() const { return ok_; }
  // ok(), and nothing is left.
  [[nodiscard]] bool complete() const { return ok_ && at_ == bytes_.size(); }

 private:
  bool has(std::size_t size) {
    ok_ = ok_ && bytes_.size() - at_ >= size;
    return ok_;
  }
  const std::string& bytes_;  // must outlive the Unpacker
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace tutti::internal::net
