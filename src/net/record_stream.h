// An encrypted connection whose records this process makes itself, because the kernel does not (net/kernel_tls.h): TLS
// 1.3 records (net/tls_records.h) over a socket that never waits.
//
// A record that the kernel has taken only in part must be completed before the peer can read any of it. So send()
// reports all bytes of such records except the last one: a caller that still has bytes to send calls again, and does
// not count a message as sent before the kernel has all of it.
//
// Threads: one at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "base/status.h"
#include "net/tls_records.h"

namespace tutti::internal::net {

class RecordStream {
 public:
  static Result<std::unique_ptr<RecordStream>> make(const TrafficSecrets& secrets);
  RecordStream(RecordSealer sealer, RecordOpener opener) : sealer_(std::move(sealer)), opener_(std::move(opener)) {}

  // As those of ByteStream, over `socket`. A damaged or forged record is EBADMSG, from then on at every call; without
  // memory, ENOBUFS.
  ssize_t send(int socket, const std::byte* head, std::size_t head_bytes, const std::byte* payload, std::size_t n);
  ssize_t recv(int socket, std::byte* destination, std::size_t n, std::byte* behind, std::size_t more);
  // Whether recv() has bytes although the socket may have none.
  [[nodiscard]] bool holds() const { return plain_ < plain_end_ || whole_record() != 0; }
  // Bytes of records that the kernel has not taken.
  [[nodiscard]] std::size_t unsent() const { return out_end_ - sent_; }

 private:
  // False, and errno: some are left.
  bool flush(int socket);
  // False, and errno.
  bool seal(const std::byte* head, std::size_t head_bytes, const std::byte* payload, std::size_t n);
  // The length of the record that begins at sealed_, if all of it is there; else 0.
  [[nodiscard]] std::size_t whole_record() const;
  // Decrypts the record at sealed_ in place, or to `destination` if that has room. False, and errno: it is damaged.
  bool open(std::byte* destination, std::size_t room, std::size_t* got);
  std::size_t take_plain(std::byte* destination, std::size_t n);
  ssize_t fill(int socket);
  bool make_room();

  // Bytes that are not set to zero as it grows.
  class Memory {
   public:
    [[nodiscard]] std::byte* data() const { return bytes_.get(); }
    [[nodiscard]] std::size_t size() const { return size_; }
    // Keeps the first `kept` bytes. False: there is no memory, and nothing has changed.
    bool grow(std::size_t size, std::size_t kept) noexcept;

   private:
    std::unique_ptr<std::byte[]> bytes_;
    std::size_t size_ = 0;
  };

  RecordSealer sealer_;
  RecordOpener opener_;
  Memory out_;  // records, [sent_, out_end_) of which are not in the kernel
  std::size_t sent_ = 0;
  std::size_t out_end_ = 0;
  bool owes_ = false;  // the next byte to send is in out_ already
  // [plain_, plain_end_) are decrypted bytes that recv() has not returned; [sealed_, end_), behind them, records.
  Memory in_;
  std::size_t plain_ = 0;
  std::size_t plain_end_ = 0;
  std::size_t sealed_ = 0;
  std::size_t end_ = 0;
  bool filled_ = false;  // the last read filled all memory: more has probably arrived
  bool damaged_ = false;
};

}  // namespace tutti::internal::net
