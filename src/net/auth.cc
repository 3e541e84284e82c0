#include "net/auth.h"

#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "net/frame.h"
#include "net/libcrypto.h"
#include "net/socket.h"
#include "os/kernel.h"

namespace tutti::internal::net {
namespace {

constexpr std::string_view kMagic = "tutti\r\n";
// The version of the handshake only. All versions of tutti share its greeting, so that ranks can report different
// versions.
constexpr std::uint8_t kProtocolVersion = 7;
constexpr std::size_t kGreetingBytes = kMagic.size() + 1;
constexpr std::size_t kClaimBytes = 1 + 4 + 2 + 2 + 8 + 1;
constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kHelloBytes = kGreetingBytes + kClaimBytes + kNonceBytes;
constexpr std::size_t kMacBytes = sizeof(Mac);
constexpr std::size_t kReplyBytes = kHelloBytes + kMacBytes;
constexpr char kWelcome = '!';

Result<std::string> make_hello(const Claim& claim, bool encrypts) {
  std::array<std::uint8_t, kNonceBytes> nonce;
  if (Status s = random_bytes(nonce.data(), nonce.size()); !s.is_ok()) return s;
  Packer packer;
  packer.raw(kMagic.data(), kMagic.size()).number(kProtocolVersion);
  packer.number(static_cast<std::uint8_t>(claim.purpose)).number(claim.rank).number(claim.index).number(claim.count);
  packer.number(claim.communicator).number(static_cast<std::uint8_t>(encrypts));
  packer.raw(nonce.data(), nonce.size());
  return packer.bytes();
}

// A Unix socket does not leave the host.
bool wants_encryption(Encryption mode, int socket) {
  if (mode == Encryption::kOff) return false;
  Result<Address> own = local_address(socket);
  if (own.is_ok() && own->family() == AF_UNIX) return false;
  if (mode == Encryption::kOn || !own.is_ok()) return true;
  Result<Address> peer = peer_address(socket);
  return !peer.is_ok() || !is_in_own_network(*own, *peer);
}

// kSystemError: the system refuses this process the call, whatever the other end does.
Status lost_connection(const char* call, int error) {
  const std::string advice = refusal_advice(error);
  if (!advice.empty()) return Status::system(call + advice, error);
  return Status::remote(fmt::format("connection lost during the handshake: {}", std::strerror(error)));
}

}  // namespace

Result<Mac> hmac_sha256(const void* key, std::size_t key_bytes, const std::string& message) {
  Mac mac{};
  unsigned length = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(message.data());
  const Status computed = Libcrypto::instance().use([&] {
    const auto* const made =
        ::HMAC(::EVP_sha256(), key, static_cast<int>(key_bytes), data, message.size(), mac.data(), &length);
    return made != nullptr && length == mac.size() ? Status()
                                                   : Status::internal("libcrypto cannot compute HMAC-SHA256");
  });
  if (!computed.is_ok()) return computed;
  return mac;
}

Status random_bytes(void* data, std::size_t bytes) {
  auto* at = static_cast<std::uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t got = os::kernel().getrandom(at, bytes);
    if (got < 0 && errno != EINTR) {
      const int error = errno;
      return Status::system("getrandom" + refusal_advice(error), error);
    }
    if (got <= 0) continue;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return {};
}

Handshake::Handshake(Role role, const Secret& secret, const Claim& mine, std::int32_t expected_rank)
    : role_(role),
      state_(role == Role::kDialler ? State::kSendHello : State::kReadHello),
      secret_(secret),
      mine_(mine),
      expected_rank_(expected_rank),
      want_bytes_(role == Role::kAcceptor ? kHelloBytes : 0) {}

short Handshake::events() const {
  switch (state_) {
    case State::kSendHello:
    case State::kSendReply:
    case State::kSendProof:
    case State::kSendWelcome: return POLLOUT;
    case State::kEncrypt: return tls_->events();
    default: return POLLIN;
  }
}

Result<bool> Handshake::advance(ByteStream* stream) {
  if (state_ == State::kSendHello && buffer_.empty()) {
    encrypts_ = wants_encryption(mine_.encryption, stream->get());
    if (Status s = enter(State::kSendHello); !s.is_ok()) return s;
  }
  while (state_ != State::kDone) {
    Result<bool> complete = state_ == State::kEncrypt ? encrypt(stream)
                            : events() == POLLOUT     ? send_more(stream)
                                                      : read_more(stream);
    if (!complete.is_ok()) return complete.status();
    if (!*complete) return false;
    Status next;
    switch (state_) {
      case State::kSendHello: next = enter(State::kReadReply); break;
      case State::kSendReply: next = enter(State::kReadProof); break;
      case State::kSendProof: next = enter(encrypts_ ? State::kEncrypt : State::kReadWelcome); break;
      case State::kEncrypt: next = enter(role_ == Role::kDialler ? State::kReadWelcome : State::kSendWelcome); break;
      case State::kSendWelcome: next = enter(State::kDone); break;
      default: next = received(stream); break;
    }
    if (!next.is_ok()) return next;
  }
  return true;
}

// Prepares the buffer for a state: what to send, or how much to read.
Status Handshake::enter(State state) {
  state_ = state;
  done_bytes_ = 0;
  buffer_.clear();
  want_bytes_ = state == State::kReadReply     ? kReplyBytes
                : state == State::kReadProof   ? kMacBytes
                : state == State::kReadWelcome ? 1
                                               : 0;
  if (state == State::kSendHello || state == State::kSendReply) {
    Result<std::string> hello = make_hello(mine_, encrypts_);
    if (!hello.is_ok()) return hello.status();
    (state == State::kSendHello ? hello_ : reply_) = *hello;
    buffer_ = *hello;
  }
  if (state == State::kSendReply || state == State::kSendProof) {
    Result<Mac> proof = proof_of(role_);
    if (!proof.is_ok()) return proof.status();
    buffer_.append(reinterpret_cast<const char*>(proof->data()), proof->size());
  }
  if (state == State::kEncrypt) return begin_encryption();
  if (state == State::kSendWelcome) buffer_.assign(1, kWelcome);
  return {};
}

// Sends a proof that is valid for no secret: it shows the acceptor why this side closes the connection, and reveals
// nothing else.
void Handshake::refuse(ByteStream* stream) {
  const Mac none{};
  // It fits into any socket's buffer; if the acceptor has closed the connection, it does not matter.
  [[maybe_unused]] const ssize_t sent = stream->send(none.data(), none.size());
}

// Sends this side's version to a dialler of another version. Reads the dialler's bytes first, because closing a
// connection with unread bytes discards sent bytes.
void Handshake::greet(ByteStream* stream) {
  std::array<char, 4096> rest;
  [[maybe_unused]] const ssize_t got = stream->recv(rest.data(), rest.size());
  std::string greeting(kMagic);
  greeting.push_back(static_cast<char>(kProtocolVersion));
  [[maybe_unused]] const ssize_t sent = stream->send(greeting.data(), greeting.size());
}

// Processes a whole message.
Status Handshake::received(ByteStream* stream) {
  if (state_ == State::kReadProof) {
    if (Status s = verify_proof(Role::kDialler, buffer_); !s.is_ok()) return s;
    return enter(encrypts_ ? State::kEncrypt : State::kSendWelcome);
  }
  if (state_ == State::kReadWelcome) {
    if (buffer_.front() != kWelcome) return Status::invalid_usage("protocol error: an unknown answer to the proof");
    return enter(State::kDone);
  }
  const bool hello = state_ == State::kReadHello;
  (hello ? hello_ : reply_) = buffer_.substr(0, kHelloBytes);
  if (hello) {
    encrypts_ = wants_encryption(mine_.encryption, stream->get());
    if (Status s = read_claim(); !s.is_ok()) return s;
    return enter(State::kSendReply);
  }
  // The reply is not used before its proof is verified.
  if (Status s = verify_proof(Role::kAcceptor, buffer_.substr(kHelloBytes)); !s.is_ok()) {
    if (wrong_secret_) refuse(stream);
    return s;
  }
  if (Status s = read_claim(); !s.is_ok()) return s;
  if (peer_.rank != expected_rank_) {
    return Status::invalid_usage(fmt::format("rank {} answers in place of rank {}", peer_.rank, expected_rank_));
  }
  return enter(State::kSendProof);
}

// Checks the greeting as its bytes arrive, so that garbage is refused early.
Status Handshake::check_greeting(ByteStream* stream) {
  const std::string_view got = std::string_view(buffer_).substr(0, done_bytes_);
  const std::size_t magic = std::min(got.size(), kMagic.size());
  if (got.substr(0, magic) != kMagic.substr(0, magic)) {
    return Status::invalid_usage("the other end is not tutti");
  }
  if (got.size() > magic && static_cast<std::uint8_t>(got[magic]) != kProtocolVersion) {
    other_version_ = true;
    if (role_ == Role::kAcceptor) greet(stream);
    return Status::invalid_usage(fmt::format("the other end has another version of tutti (handshake {}, here {})",
                                             static_cast<unsigned char>(got[magic]), kProtocolVersion));
  }
  return {};
}

Status Handshake::read_claim() {
  const std::string claim = (role_ == Role::kDialler ? reply_ : hello_).substr(kGreetingBytes, kClaimBytes);
  Unpacker unpacker(claim);
  peer_.purpose = static_cast<Purpose>(unpacker.number<std::uint8_t>());
  peer_.rank = unpacker.number<std::int32_t>();
  peer_.index = unpacker.number<std::uint16_t>();
  peer_.count = unpacker.number<std::uint16_t>();
  peer_.communicator = unpacker.number<std::uint64_t>();
  const bool theirs = unpacker.number<std::uint8_t>() != 0;
  if (role_ == Role::kDialler && encrypts_ && !theirs) {
    return Status::invalid_usage("protocol error: the other end does not encrypt the connection");
  }
  encrypts_ = encrypts_ || theirs;
  const bool remakes = peer_.purpose == Purpose::kStream && mine_.purpose == Purpose::kLink;
  if (role_ == Role::kAcceptor && remakes) mine_.purpose = Purpose::kStream;
  if (peer_.purpose != mine_.purpose)
    return Status::invalid_usage("protocol error: the other end opened this connection for another purpose");
  if (peer_.count == 0 || peer_.index >= peer_.count) {
    return Status::invalid_usage(
        fmt::format("protocol error: the other end says connection {} of {}", peer_.index, peer_.count));
  }
  return {};
}

// The nonces make the key one of this connection alone.
Status Handshake::begin_encryption() {
  const std::string label = "tutti encrypted connection, version 1:";
  Result<Mac> key = hmac_sha256(secret_.data(), secret_.size(), label + hello_ + reply_);
  if (!key.is_ok()) return key.status();
  const auto role = role_ == Role::kDialler ? TlsHandshake::Role::kClient : TlsHandshake::Role::kServer;
  tls_ = std::make_unique<TlsHandshake>(role, *key);
  return {};
}

Result<bool> Handshake::encrypt(ByteStream* stream) {
  Result<bool> finished = tls_->advance(stream->get());
  if (!finished.is_ok() || !*finished) return finished;
  const TrafficSecrets secrets = tls_->secrets();
  tls_.reset();
  if (Status s = stream->encrypt(secrets); !s.is_ok()) return s;
  return true;
}

Result<Mac> Handshake::proof_of(Role role) const {
  const std::string message = std::string(1, static_cast<char>(role)) + hello_ + reply_;
  return hmac_sha256(secret_.data(), secret_.size(), message);
}

Status Handshake::verify_proof(Role prover, const std::string& proof) {
  Result<Mac> expected = proof_of(prover);
  if (!expected.is_ok()) return expected.status();
  if (proof.size() != expected->size() || ::CRYPTO_memcmp(proof.data(), expected->data(), proof.size()) != 0) {
    wrong_secret_ = true;
    return Status::invalid_usage("the other end does not know this job's secret");
  }
  return {};
}

Result<bool> Handshake::read_more(ByteStream* stream) {
  buffer_.resize(want_bytes_);
  while (done_bytes_ < want_bytes_) {
    const ssize_t got = stream->recv(buffer_.data() + done_bytes_, want_bytes_ - done_bytes_);
    if (got == 0) return Status::remote("the other end closed the connection during the handshake");
    if (got < 0) {
      if (errno == EINTR) continue;
      if (would_block(errno)) return false;
      return lost_connection("recv", errno);
    }
    done_bytes_ += static_cast<std::size_t>(got);
    if (state_ == State::kReadProof || state_ == State::kReadWelcome) continue;
    if (Status s = check_greeting(stream); !s.is_ok()) return s;
  }
  return true;
}

Result<bool> Handshake::send_more(ByteStream* stream) {
  while (done_bytes_ < buffer_.size()) {
    const ssize_t sent = stream->send(buffer_.data() + done_bytes_, buffer_.size() - done_bytes_);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (would_block(errno)) return false;
      return lost_connection("send", errno);
    }
    done_bytes_ += static_cast<std::size_t>(sent);
  }
  return true;
}

}  // namespace tutti::internal::net
