// Records of TLS 1.3 (RFC 8446, section 5) with AES-128-GCM, after the handshake (net/tls_handshake.h): one direction
// of a connection each. The kernel speaks the same (net/kernel_tls.h).
//
// OpenSSL's SSL objects are not used for this: OpenSSL 3.0 cannot let the kernel receive TLS 1.3, and an SSL object
// makes a further copy, needs 40 KiB of memory, and must be called again with the same bytes after a record that was
// sent in part.
//
// Threads: one at a time for each object.
#pragma once

#include <openssl/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"

namespace tutti::internal::net {

using TrafficSecret = std::array<std::uint8_t, 32>;
struct TrafficSecrets {
  TrafficSecret sending{};
  TrafficSecret receiving{};
};

// What encrypts the records of a direction (RFC 8446, section 7.3).
struct RecordKeys {
  std::array<std::uint8_t, 16> key{};
  std::array<std::uint8_t, 12> iv{};
};
Result<RecordKeys> record_keys_of(const TrafficSecret& secret);

inline constexpr std::size_t kRecordHeaderBytes = 5;
inline constexpr std::size_t kRecordTagBytes = 16;
inline constexpr std::size_t kRecordOverhead = kRecordHeaderBytes + 1 + kRecordTagBytes;  // the 1: the content's type
inline constexpr std::size_t kMostRecordPayload = 16384;
inline constexpr std::size_t kKeyUpdateBytes = kRecordOverhead + 5;  // the whole record
// A key encrypts at most this many records: the limit of AES-GCM is 2^24.5 long ones (RFC 8446, section 5.5).
inline constexpr std::uint64_t kMostRecordsOfKey = std::uint64_t{1} << 24;

// AES-128-GCM with the key, nonces and keys to come of one direction.
class RecordCipher {
 public:
  static Result<RecordCipher> make(const TrafficSecret& secret, bool encrypts);

  // The nonce of the next record, and its header as additional data. False: libcrypto has failed, as below.
  bool begin(const std::byte* header);
  bool update(const std::byte* in, std::size_t n, std::byte* out);
  bool end_encryption(std::byte* tag);
  bool end_decryption(const std::byte* tag);  // false also if the record is damaged
  [[nodiscard]] std::uint64_t records() const { return records_; }
  // The next key (RFC 8446, section 7.2).
  Status change_key();

 private:
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const;
  };
  RecordCipher() = default;
  Status set_key();

  std::unique_ptr<EVP_CIPHER_CTX, Free> context_;
  TrafficSecret secret_{};
  std::array<std::uint8_t, 12> iv_{};
  std::uint64_t records_ = 0;  // with this key
  bool encrypts_ = false;
};

class RecordSealer {
 public:
  // `most_records`: see kMostRecordsOfKey.
  static Result<RecordSealer> make(const TrafficSecret& secret, std::uint64_t most_records = kMostRecordsOfKey);

  // Writes a record with `head`, then `payload` (together 1 to kMostRecordPayload bytes) to `out`, which has room for
  // them and kRecordOverhead + kKeyUpdateBytes more: when the key is used up, a KeyUpdate precedes. Returns the bytes
  // written. kInternal: libcrypto has failed.
  Result<std::size_t> seal(std::span<const std::byte> head, std::span<const std::byte> payload, std::byte* out);

 private:
  RecordSealer(RecordCipher cipher, std::uint64_t most_records)
      : cipher_(std::move(cipher)), most_records_(most_records) {}
  bool write(std::uint8_t type, std::span<const std::byte> head, std::span<const std::byte> payload, std::byte* out);

  RecordCipher cipher_;
  std::uint64_t most_records_;
};

class RecordOpener {
 public:
  static Result<RecordOpener> make(const TrafficSecret& secret);

  // The whole length of the record that begins with these kRecordHeaderBytes bytes. kRemoteError: none begins so.
  static Result<std::size_t> record_bytes(const std::byte* header);
  // Decrypts a whole record to `out`, which has room for its length less kRecordOverhead, or is in the record, behind
  // the header. Returns the length of the payload, which may be 0. kRemoteError, from then on at every call: the record
  // is damaged, forged, not the next one, or neither data nor a KeyUpdate that asks for none in return.
  Result<std::size_t> open(std::span<const std::byte> record, std::byte* out);

 private:
  explicit RecordOpener(RecordCipher cipher) : cipher_(std::move(cipher)) {}
  Result<std::size_t> decrypt(std::span<const std::byte> record, std::byte* out);

  RecordCipher cipher_;
  bool failed_ = false;
};

}  // namespace tutti::internal::net
