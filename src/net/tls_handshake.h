// The handshake of TLS 1.3 (RFC 8446) between two processes that share a key: a pre-shared key with ephemeral
// Diffie-Hellman (psk_dhe_ke), TLS_AES_128_GCM_SHA256, no certificates, no tickets, no early data. OpenSSL runs it. Its
// result is the two traffic secrets, from which net/tls_records.h or the kernel go on.
//
// Recorded bytes stay secret even if the key becomes known later. A process without the key can neither finish the
// handshake nor choose weaker parameters.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "net/tls_records.h"

namespace tutti::internal::net {

using PresharedKey = std::array<std::uint8_t, 32>;

class TlsHandshake {
 public:
  enum class Role : std::uint8_t { kClient, kServer };
  // `key`: of this connection alone.
  TlsHandshake(Role role, const PresharedKey& key);
  TlsHandshake(const TlsHandshake&) = delete;
  TlsHandshake& operator=(const TlsHandshake&) = delete;
  ~TlsHandshake();

  // Reads and writes what the socket allows now; never waits. True when finished: all its bytes are sent, and none
  // behind it has been read. kInvalidUsage: the other end has another key, or speaks something else. kRemoteError: it
  // closed the connection.
  Result<bool> advance(int socket);
  // What to poll for: POLLIN or POLLOUT.
  [[nodiscard]] short events() const;
  // REQUIRES: advance() has returned true.
  [[nodiscard]] const TrafficSecrets& secrets() const;

 private:
  class Session;
  std::unique_ptr<Session> session_;
};

}  // namespace tutti::internal::net
