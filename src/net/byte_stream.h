// One connection to another process: bytes in order, both ways. Control connections and the lanes of the tcp transport
// use it, so that what protects the bytes is decided here alone.
//
// Threads: one at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "os/unique_fd.h"

namespace tutti::internal::net {

class ByteStream {
 public:
  ByteStream() = default;
  // A non-blocking stream socket.
  explicit ByteStream(UniqueFd socket) : socket_(std::move(socket)) {}

  [[nodiscard]] bool valid() const { return socket_.valid(); }
  // The socket, to wait for it and to set its options.
  [[nodiscard]] int get() const { return socket_.get(); }
  void reset() { socket_.reset(); }
  // Gives the socket up.
  [[nodiscard]] UniqueFd release() { return std::move(socket_); }

  // As send(2) and recv(2), which never wait here and raise no signal: the number of bytes, or -1 and errno. If send()
  // takes fewer than all bytes, the next call must continue with the byte behind those.
  ssize_t send(const void* data, std::size_t n);
  // `head`, at most kMostHeadBytes, then `payload`.
  static constexpr std::size_t kMostHeadBytes = 64;
  ssize_t send(const std::byte* head, std::size_t head_bytes, const std::byte* payload, std::size_t n);
  ssize_t recv(void* data, std::size_t n);
  // Up to n bytes to `destination`, then up to `more` bytes to `behind`.
  ssize_t recv(std::byte* destination, std::size_t n, std::byte* behind, std::size_t more);

 private:
  UniqueFd socket_;
};

}  // namespace tutti::internal::net
