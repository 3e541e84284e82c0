#include "net/tls_handshake.h"

#include <fmt/core.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

#include "base/first_use.h"
#include "net/libcrypto.h"
#include "net/socket.h"
#include "os/kernel.h"

namespace tutti::internal::net {
namespace {

constexpr std::array<unsigned char, 2> kCipherNumber{0x13, 0x01};
constexpr const char* kCipherName = "TLS_AES_128_GCM_SHA256";
constexpr std::string_view kIdentity = "tutti";
constexpr std::size_t kMostRecordBytes = kMostRecordPayload + 256;
// Of one handshake from the other end: it has a handful.
constexpr int kMostRecords = 32;

template <std::size_t kBytes>
bool read_hex(std::string_view text, std::array<std::uint8_t, kBytes>* out) {
  if (text.size() != 2 * kBytes) return false;
  for (std::size_t i = 0; i < kBytes; ++i) {
    const char* const at = text.data() + 2 * i;
    if (std::from_chars(at, at + 2, (*out)[i], 16).ptr != at + 2) return false;
  }
  return true;
}

}  // namespace

class TlsHandshake::Session {
 public:
  Session(Role role, const PresharedKey& key) : role_(role), key_(key) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    ::OPENSSL_cleanse(key_.data(), key_.size());
    ::OPENSSL_cleanse(&secrets_, sizeof secrets_);
    (void)free();
  }

  Result<bool> advance(int socket);
  [[nodiscard]] short events() const { return sent_ < to_send_.size() ? POLLOUT : POLLIN; }
  [[nodiscard]] const TrafficSecrets& secrets() const { return secrets_; }

 private:
  static Session* of(const SSL* ssl);
  static int use_key(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, std::size_t* bytes,
                     SSL_SESSION** session);
  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t bytes, SSL_SESSION** session);
  static SSL_CTX* make_context();
  static SSL_CTX* context();
  SSL_SESSION* session_of_key();
  void keep(std::string_view line);
  enum class Step : std::uint8_t { kWants, kFinished };
  Status step(Step* step);
  Status begin();
  [[nodiscard]] Status check() const;
  Status free();
  void fetch_output();
  Result<bool> flush(int socket);
  Result<bool> read_record(int socket);
  static Status failed();

  const Role role_;
  PresharedKey key_;
  SSL* ssl_ = nullptr;
  BIO* in_ = nullptr;  // of ssl_, as is out_
  BIO* out_ = nullptr;
  std::string to_send_;
  std::size_t sent_ = 0;
  std::string record_;  // that is being received
  int records_ = 0;
  bool finished_ = false;
  TrafficSecrets secrets_;
  bool has_client_ = false;
  bool has_server_ = false;
};

// ---- OpenSSL's callbacks --------------------------------------------------------------------------

TlsHandshake::Session* TlsHandshake::Session::of(const SSL* ssl) {
  return static_cast<Session*>(SSL_get_app_data(ssl));
}

int TlsHandshake::Session::use_key(SSL* ssl, const EVP_MD* /*digest*/, const unsigned char** identity,
                                   std::size_t* bytes, SSL_SESSION** session) {
  *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *bytes = kIdentity.size();
  *session = of(ssl)->session_of_key();
  return *session != nullptr ? 1 : 0;
}

// Another identity finds no key, and so the handshake fails: there is no certificate.
int TlsHandshake::Session::find_key(SSL* ssl, const unsigned char* identity, std::size_t bytes, SSL_SESSION** session) {
  const std::string_view name(reinterpret_cast<const char*>(identity), bytes);
  *session = name == kIdentity ? of(ssl)->session_of_key() : nullptr;
  return 1;
}

SSL_CTX* TlsHandshake::Session::make_context() {
  SSL_CTX* const made = ::SSL_CTX_new_ex(Libcrypto::instance().context(), nullptr, ::TLS_method());
  if (made == nullptr) return nullptr;
  ::SSL_CTX_set_options(made, SSL_OP_NO_TICKET);
  ::SSL_CTX_clear_options(made, SSL_OP_ENABLE_MIDDLEBOX_COMPAT | SSL_OP_ALLOW_NO_DHE_KEX);
  ::SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_psk_use_session_callback(made, use_key);
  ::SSL_CTX_set_psk_find_session_callback(made, find_key);
  ::SSL_CTX_set_keylog_callback(made, [](const SSL* ssl, const char* line) { of(ssl)->keep(line); });
  const bool set = ::SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION) == 1 &&
                   ::SSL_CTX_set_max_proto_version(made, TLS1_3_VERSION) == 1 &&
                   ::SSL_CTX_set_ciphersuites(made, kCipherName) == 1 && ::SSL_CTX_set_num_tickets(made, 0) == 1;
  if (set) return made;
  ::SSL_CTX_free(made);
  return nullptr;
}

// Of this process; null if libssl lacks something. REQUIRES: within Libcrypto::use().
SSL_CTX* TlsHandshake::Session::context() {
  static constinit FirstUse<SSL_CTX*, Surplus::kKept> only;
  return only.get(make_context);
}

SSL_SESSION* TlsHandshake::Session::session_of_key() {
  SSL_SESSION* const session = ::SSL_SESSION_new();
  if (session == nullptr) return nullptr;
  const SSL_CIPHER* const cipher = ::SSL_CIPHER_find(ssl_, kCipherNumber.data());
  const bool set = cipher != nullptr && ::SSL_SESSION_set1_master_key(session, key_.data(), key_.size()) == 1 &&
                   ::SSL_SESSION_set_cipher(session, cipher) == 1 &&
                   ::SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  if (set) return session;
  ::SSL_SESSION_free(session);
  return nullptr;
}

// A line of the key log: what the secret is, the client's random number, the secret.
void TlsHandshake::Session::keep(std::string_view line) {
  const std::string_view name = line.substr(0, line.find(' '));
  const std::string_view hex = line.substr(line.rfind(' ') + 1);
  const bool client = name == "CLIENT_TRAFFIC_SECRET_0";
  if (!client && name != "SERVER_TRAFFIC_SECRET_0") return;
  const bool own = client == (role_ == Role::kClient);
  (client ? has_client_ : has_server_) = read_hex(hex, own ? &secrets_.sending : &secrets_.receiving);
}

Status TlsHandshake::Session::failed() {
  const char* const reason = ::ERR_reason_error_string(::ERR_peek_last_error());
  const std::string why = reason == nullptr ? "" : fmt::format(" ({})", reason);
  ::ERR_clear_error();
  return Status::invalid_usage("the other end does not finish the TLS handshake" + why);
}

Status TlsHandshake::Session::begin() {
  SSL_CTX* const shared = context();
  ssl_ = shared == nullptr ? nullptr : ::SSL_new(shared);
  in_ = ::BIO_new(::BIO_s_mem());
  out_ = ::BIO_new(::BIO_s_mem());
  if (ssl_ == nullptr || in_ == nullptr || out_ == nullptr) {
    ::BIO_free(in_);
    ::BIO_free(out_);
    ::ERR_clear_error();
    return Status::internal("libssl cannot begin a TLS 1.3 handshake");
  }
  SSL_set_app_data(ssl_, this);
  ::SSL_set_bio(ssl_, in_, out_);
  if (role_ == Role::kClient) {
    ::SSL_set_connect_state(ssl_);
    ::SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);  // no certificate may replace the key
  } else {
    ::SSL_set_accept_state(ssl_);
  }
  return {};
}

Status TlsHandshake::Session::check() const {
  const bool right = ::SSL_session_reused(ssl_) == 1 && ::SSL_version(ssl_) == TLS1_3_VERSION &&
                     std::string_view(::SSL_get_cipher_name(ssl_)) == kCipherName && has_client_ && has_server_;
  return right ? Status() : Status::internal("the TLS handshake did not use the job's key");
}

// After it, ssl_ is null.
Status TlsHandshake::Session::free() {
  if (ssl_ == nullptr) return {};
  return Libcrypto::instance().use([this] {
    ::SSL_free(std::exchange(ssl_, nullptr));
    return Status();
  });
}

void TlsHandshake::Session::fetch_output() {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(out_, &data);
  if (bytes > 0) to_send_.append(data, static_cast<std::size_t>(bytes));
  (void)BIO_reset(out_);
}

Status TlsHandshake::Session::step(Step* step) {
  return Libcrypto::instance().use([&] {
    if (ssl_ == nullptr) {
      if (Status s = begin(); !s.is_ok()) return s;
    }
    if (!record_.empty()) {
      const int taken = ::BIO_write(in_, record_.data(), static_cast<int>(record_.size()));
      if (taken != static_cast<int>(record_.size())) return failed();
      record_.clear();
    }
    ::ERR_clear_error();
    const int result = ::SSL_do_handshake(ssl_);
    const int error = result == 1 ? SSL_ERROR_NONE : ::SSL_get_error(ssl_, result);
    fetch_output();
    if (error == SSL_ERROR_NONE) {
      *step = Step::kFinished;
      return check();
    }
    *step = Step::kWants;
    return error == SSL_ERROR_WANT_READ ? Status() : failed();
  });
}

Result<bool> TlsHandshake::Session::flush(int socket) {
  while (sent_ < to_send_.size()) {
    const ssize_t sent = os::kernel().send(socket, to_send_.data() + sent_, to_send_.size() - sent_);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (would_block(errno)) return false;
      return Status::remote(
          fmt::format("connection lost during the TLS handshake: {}", std::system_category().message(errno)));
    }
    sent_ += static_cast<std::size_t>(sent);
  }
  to_send_.clear();
  sent_ = 0;
  return true;
}

// Exactly one record: what follows the last one belongs to others.
Result<bool> TlsHandshake::Session::read_record(int socket) {
  for (;;) {
    std::size_t whole = kRecordHeaderBytes;
    if (record_.size() >= kRecordHeaderBytes) {
      whole += static_cast<std::size_t>(static_cast<unsigned char>(record_[3])) << 8 |
               static_cast<unsigned char>(record_[4]);
      if (whole > kRecordHeaderBytes + kMostRecordBytes || records_ >= kMostRecords) {
        return Status::invalid_usage("the other end does not speak TLS 1.3");
      }
    }
    if (record_.size() == whole) break;
    std::array<char, 4096> bytes;
    const ssize_t got = os::kernel().recv(socket, bytes.data(), std::min(bytes.size(), whole - record_.size()));
    if (got == 0) return Status::remote("the other end closed the connection during the TLS handshake");
    if (got < 0) {
      if (errno == EINTR) continue;
      if (would_block(errno)) return false;
      return Status::remote(
          fmt::format("connection lost during the TLS handshake: {}", std::system_category().message(errno)));
    }
    record_.append(bytes.data(), static_cast<std::size_t>(got));
  }
  ++records_;
  return true;
}

Result<bool> TlsHandshake::Session::advance(int socket) {
  for (;;) {
    Result<bool> flushed = flush(socket);
    if (!flushed.is_ok() || !*flushed || finished_) return flushed;
    const bool begins = ssl_ == nullptr;
    if (!begins || role_ == Role::kServer) {
      Result<bool> read = read_record(socket);
      if (!read.is_ok() || !*read) return read;
    }
    Step next = Step::kWants;
    if (Status s = step(&next); !s.is_ok()) {
      (void)flush(socket);  // why
      return s;
    }
    if (next == Step::kWants) continue;
    finished_ = true;
    if (Status s = free(); !s.is_ok()) return s;
  }
}

TlsHandshake::TlsHandshake(Role role, const PresharedKey& key) : session_(std::make_unique<Session>(role, key)) {}
TlsHandshake::~TlsHandshake() = default;

Result<bool> TlsHandshake::advance(int socket) {
  return session_->advance(socket);
}

short TlsHandshake::events() const {
  return session_->events();
}

const TrafficSecrets& TlsHandshake::secrets() const {
  return session_->secrets();
}

}  // namespace tutti::internal::net
