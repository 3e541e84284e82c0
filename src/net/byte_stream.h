// One connection to another process: bytes in order, both ways; plain, or encrypted by TLS 1.3 records, which the
// kernel makes if it can (net/kernel_tls.h), or else this process (net/record_stream.h). Control connections and the
// lanes of the tcp transport use it, so that what protects the bytes is decided here alone.
//
// Threads: one at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/status.h"
#include "net/record_stream.h"
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
  void reset() { *this = ByteStream(); }
  // Gives the socket up.
  [[nodiscard]] UniqueFd release() { return std::move(socket_); }

  // From now on all bytes of both directions are encrypted. REQUIRES: the peer does the same at this place of both
  // streams. After an error the connection must be closed.
  Status encrypt(const TrafficSecrets& secrets);
  [[nodiscard]] bool encrypted() const { return kernel_encrypts_ || records_ != nullptr; }
  [[nodiscard]] bool kernel_encrypts() const { return kernel_encrypts_; }

  // As send(2) and recv(2), which never wait here and raise no signal: the number of bytes, or -1 and errno. If send()
  // takes fewer than all bytes, the next call must continue with the byte behind those.
  ssize_t send(const void* data, std::size_t n);
  // `head`, at most kMostHeadBytes, then `payload`.
  static constexpr std::size_t kMostHeadBytes = 64;
  ssize_t send(const std::byte* head, std::size_t head_bytes, const std::byte* payload, std::size_t n);
  ssize_t recv(void* data, std::size_t n);
  // Up to n bytes to `destination`, then up to `more` bytes to `behind`.
  ssize_t recv(std::byte* destination, std::size_t n, std::byte* behind, std::size_t more);
  // Whether recv() has bytes although none may be in the socket, for which a poll would wait.
  [[nodiscard]] bool holds() const { return records_ != nullptr && records_->holds(); }

  // Of the bytes that send() has taken: how many the kernel has not sent yet, and at most how many of the last ones the
  // peer may be unable to read, because its kernel has not acknowledged them or not all of their record. Nothing: the
  // socket has failed.
  [[nodiscard]] std::optional<std::size_t> unsent() const;
  [[nodiscard]] std::optional<std::size_t> undelivered() const;

 private:
  UniqueFd socket_;
  std::unique_ptr<RecordStream> records_;  // null: plain, or the kernel encrypts
  bool kernel_encrypts_ = false;
};

}  // namespace tutti::internal::net
