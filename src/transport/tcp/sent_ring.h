// Copies of the last bytes that a stream has sent: those that the peer may not have received. If the stream's
// connection breaks, they are sent again.
//
// It holds the bytes from position begin() to end(), counted from the beginning of the stream. The memory grows when
// more bytes are unacknowledged than it has room for: up to kMostBytes, which is more than the kernel keeps unless it
// is set up for longer buffers. Then the stream takes no more until the peer's host has acknowledged some.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace tutti::internal::transport::tcp {

class SentRing {
 public:
  static constexpr std::size_t kFirstBytes = std::size_t{64} * 1024;
  static constexpr std::size_t kMostBytes = std::size_t{16} * 1024 * 1024;

  SentRing() : memory_(std::make_unique_for_overwrite<std::byte[]>(kFirstBytes)) {}

  [[nodiscard]] std::uint64_t begin() const { return begin_; }
  [[nodiscard]] std::uint64_t end() const { return end_; }
  [[nodiscard]] std::size_t room() const { return bytes_ - static_cast<std::size_t>(end_ - begin_); }
  // Room for n bytes, or as much as there is memory for.
  void grow(std::size_t n) noexcept;
  // REQUIRES: n <= room().
  void append(const std::byte* data, std::size_t n);
  // The peer has everything before `position`. REQUIRES: position <= end().
  void release(std::uint64_t position) {
    if (position > begin_) begin_ = position;
  }
  // Bytes from `position` on, at least one. There may be more behind them. REQUIRES: begin() <= position < end().
  [[nodiscard]] std::span<const std::byte> piece(std::uint64_t position) const;

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t bytes_ = kFirstBytes;  // a power of two
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace tutti::internal::transport::tcp
