#include "net/seal.h"

#include <openssl/evp.h>

#include <memory>

namespace tutti::internal::net {
namespace {

constexpr std::size_t kSealNonceBytes = 12;
constexpr std::size_t kSealTagBytes = 16;
static_assert(kSealNonceBytes + kSealTagBytes == kSealBytes);

struct ContextDeleter {
  void operator()(EVP_CIPHER_CTX* context) const { ::EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, ContextDeleter>;

Result<Mac> seal_key_of(const Secret& secret) {
  return hmac_sha256(secret.data(), secret.size(), "tutti sealed message, version 1");
}

unsigned char* bytes_at(std::string& text, std::size_t at) {
  return reinterpret_cast<unsigned char*>(text.data() + at);
}

// `in` without its nonce and tag, encrypted or decrypted into `out`. REQUIRES: both have the length of a sealed
// message.
bool apply(const Mac& key, bool encrypts, std::string in, std::string* out) {
  const Context context(::EVP_CIPHER_CTX_new());
  const std::size_t length = in.size() - kSealBytes;
  std::string& sealed = encrypts ? *out : in;
  int written = 0;
  int ended = 0;
  EVP_CIPHER_CTX* const c = context.get();
  return c != nullptr &&
         ::EVP_CipherInit_ex(c, ::EVP_aes_256_gcm(), nullptr, key.data(), bytes_at(sealed, 0), encrypts ? 1 : 0) == 1 &&
         ::EVP_CipherUpdate(c, bytes_at(*out, kSealNonceBytes), &written, bytes_at(in, kSealNonceBytes),
                            static_cast<int>(length)) == 1 &&
         (encrypts || ::EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, kSealTagBytes,
                                            bytes_at(sealed, kSealNonceBytes + length)) == 1) &&
         ::EVP_CipherFinal_ex(c, bytes_at(*out, kSealNonceBytes + static_cast<std::size_t>(written)), &ended) == 1 &&
         (!encrypts || ::EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, kSealTagBytes,
                                             bytes_at(sealed, kSealNonceBytes + length)) == 1);
}

}  // namespace

Result<std::string> seal(const Secret& secret, const std::string& message) {
  const Result<Mac> key = seal_key_of(secret);
  if (!key.is_ok()) return key.status();
  std::string sealed(message.size() + kSealBytes, '\0');
  if (Status s = random_bytes(sealed.data(), kSealNonceBytes); !s.is_ok()) return s;
  std::string plain = sealed;
  plain.replace(kSealNonceBytes, message.size(), message);
  if (!apply(key.value(), true, std::move(plain), &sealed)) {
    return Status::internal("libcrypto cannot encrypt with AES-256-GCM");
  }
  return sealed;
}

Result<std::string> unseal(const Secret& secret, const std::string& sealed) {
  const Result<Mac> key = seal_key_of(secret);
  if (!key.is_ok()) return key.status();
  std::string plain(sealed.size(), '\0');
  if (sealed.size() < kSealBytes || !apply(key.value(), false, sealed, &plain)) {
    return Status::remote("protocol error: a sealed message is damaged, or has another secret");
  }
  return plain.substr(kSealNonceBytes, sealed.size() - kSealBytes);
}

}  // namespace tutti::internal::net
