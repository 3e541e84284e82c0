// Authentication: mutual challenge and response over a fresh connection.
//
// Both sides hold the job's secret. The dialler sends its claim (purpose, rank, which of how many streams, of which
// communicator) and a nonce; the acceptor answers with its own claim, a nonce, and an HMAC-SHA256 (RFC 2104, FIPS
// 180-4) under the secret over its role and all bytes so far; the dialler answers with an HMAC over the other role and
// the same. If the claims say so, both then make the stream an encrypted one (ByteStream::encrypt), by a TLS 1.3
// handshake whose pre-shared key comes from the secret and both nonces. A process without the secret can produce
// neither, cannot replay (fresh nonces) and cannot reflect (the role is in the HMAC). The acceptor ends the handshake
// with one byte. Before that byte, a dialler does not know whether its proof arrived in time; if the connection ends,
// it dials again.
//
// Handshake is a state machine for poll loops with many connections: it never waits. Its users (Acceptor, Dial) limit
// time and number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/config.h"
#include "base/status.h"
#include "net/byte_stream.h"
#include "net/tls_handshake.h"

namespace tutti::internal::net {

using Secret = std::array<std::uint8_t, 32>;
using Mac = std::array<std::uint8_t, 32>;

// HMAC-SHA256 of a message under a key of any length.
Result<Mac> hmac_sha256(const void* key, std::size_t key_bytes, const std::string& message);
// Bytes from getrandom(2).
Status random_bytes(void* data, std::size_t bytes);

// The purpose of a connection. It must be the same on both sides; but an acceptor for links accepts kStream, too, and
// then claims it. kStream: for a stream of a link whose connection has broken.
enum class Purpose : std::uint8_t { kRoot = 1, kTree = 2, kLink = 3, kStream = 4 };

// The claim of one side. The root service is rank -1.
struct Claim {
  Purpose purpose = Purpose::kRoot;
  std::int32_t rank = -1;
  std::uint16_t index = 0;  // of `count` connections between the two
  std::uint16_t count = 1;
  std::uint64_t communicator = 0;  // of the job, to which the connection belongs; an acceptor serves all of them and
                                   // claims 0
  // Which connections this side wants to be encrypted. If either side wants this one, it is.
  Encryption encryption = Encryption::kOff;
};

class Handshake {
 public:
  enum class Role : std::uint8_t { kDialler = 1, kAcceptor = 2 };
  // `expected_rank`: for the dialler, the rank that must answer; a different one is an error.
  Handshake(Role role, const Secret& secret, const Claim& mine, std::int32_t expected_rank = -1);

  // Reads and writes what the stream allows now. True when finished: then peer() is verified, and the stream holds no
  // more bytes of the handshake. kInvalidUsage: the other end is not tutti, another version of it, or does not know the
  // secret. kRemoteError: it closed the connection.
  Result<bool> advance(ByteStream* stream);
  // This side has sent its proof, and the other side, which may rely on the connection from now on, has not confirmed
  // it yet.
  [[nodiscard]] bool awaits_welcome() const { return state_ == State::kEncrypt || state_ == State::kReadWelcome; }
  // What to poll for: POLLIN or POLLOUT.
  [[nodiscard]] short events() const;
  // The last error was a wrong secret: the other end is tutti, but of another job.
  [[nodiscard]] bool wrong_secret() const { return wrong_secret_; }
  // The last error was another version of tutti at the other end. Its greeting is not authenticated.
  [[nodiscard]] bool other_version() const { return other_version_; }
  // The other side's claim. REQUIRES: advance() has returned true.
  [[nodiscard]] const Claim& peer() const { return peer_; }

 private:
  enum class State : std::uint8_t {
    kSendHello,
    kReadHello,
    kSendReply,
    kReadReply,
    kSendProof,
    kReadProof,
    kEncrypt,
    kSendWelcome,
    kReadWelcome,
    kDone
  };
  Status enter(State state);
  Status received(ByteStream* stream);
  static void refuse(ByteStream* stream);
  static void greet(ByteStream* stream);
  Status check_greeting(ByteStream* stream);
  Status read_claim();
  Status begin_encryption();
  Result<bool> encrypt(ByteStream* stream);
  Result<Mac> proof_of(Role role) const;
  Status verify_proof(Role prover, const std::string& proof);
  Result<bool> read_more(ByteStream* stream);
  Result<bool> send_more(ByteStream* stream);

  Role role_;
  State state_;
  Secret secret_;
  Claim mine_;
  Claim peer_;
  std::int32_t expected_rank_;
  std::string hello_;  // the dialler's greeting, claim and nonce
  std::string reply_;  // the acceptor's
  std::string buffer_;
  std::size_t done_bytes_ = 0;
  std::size_t want_bytes_ = 0;
  bool encrypts_ = false;  // this side wants it; once the peer's claim is known, both do it
  std::unique_ptr<TlsHandshake> tls_;
  bool wrong_secret_ = false;
  bool other_version_ = false;
};

}  // namespace tutti::internal::net
