#include "net/tls_records.h"

#include <openssl/evp.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/first_use.h"
#include "net/auth.h"
#include "net/libcrypto.h"

namespace tutti::internal::net {
namespace {

constexpr std::uint8_t kHandshakeType = 22;
constexpr std::uint8_t kDataType = 23;
constexpr std::array<std::byte, 3> kDataBegin{std::byte{kDataType}, std::byte{3}, std::byte{3}};
constexpr std::size_t kMostSealedBytes = kMostRecordPayload + 256;  // RFC 8446, section 5.2
// A KeyUpdate that asks for none in return: message 24, 1 byte long, 0.
constexpr std::array<std::byte, 5> kKeyUpdate{std::byte{24}, std::byte{0}, std::byte{0}, std::byte{1}, std::byte{0}};

// Null: libcrypto does not have it. Never freed, like its context: see Libcrypto::context().
EVP_CIPHER* aes_gcm() {
  static constinit FirstUse<EVP_CIPHER*, Surplus::kKept> only;
  return only.get([] {
    EVP_CIPHER* fetched = nullptr;
    (void)Libcrypto::instance().use([&fetched] {
      fetched = ::EVP_CIPHER_fetch(Libcrypto::instance().context(), "AES-128-GCM", nullptr);
      return Status();
    });
    return fetched;
  });
}

// HKDF-Expand-Label of at most 32 bytes (RFC 8446, section 7.1): one block of HKDF (RFC 5869).
template <std::size_t kBytes>
Status expand(const TrafficSecret& secret, std::string_view label, std::array<std::uint8_t, kBytes>* out) {
  static_assert(kBytes <= sizeof(Mac));
  const std::string whole = "tls13 " + std::string(label);
  std::string info{'\0', static_cast<char>(kBytes), static_cast<char>(whole.size())};
  info.append(whole).append(1, '\0').append(1, '\1');
  Result<Mac> block = hmac_sha256(secret.data(), secret.size(), info);
  if (!block.is_ok()) return block.status();
  std::memcpy(out->data(), block->data(), kBytes);
  return {};
}

Status damaged() {
  return Status::remote("an encrypted message was damaged or forged");
}

const unsigned char* bytes_of(const std::byte* data) {
  return reinterpret_cast<const unsigned char*>(data);
}
unsigned char* bytes_of(std::byte* data) {
  return reinterpret_cast<unsigned char*>(data);
}

}  // namespace

Result<RecordKeys> record_keys_of(const TrafficSecret& secret) {
  RecordKeys keys;
  if (Status s = expand(secret, "key", &keys.key); !s.is_ok()) return s;
  if (Status s = expand(secret, "iv", &keys.iv); !s.is_ok()) return s;
  return keys;
}

// ---- The cipher -----------------------------------------------------------------------------------

void RecordCipher::Free::operator()(EVP_CIPHER_CTX* context) const {
  ::EVP_CIPHER_CTX_free(context);
}

Result<RecordCipher> RecordCipher::make(const TrafficSecret& secret, bool encrypts) {
  RecordCipher made;
  made.secret_ = secret;
  made.encrypts_ = encrypts;
  made.context_.reset(::EVP_CIPHER_CTX_new());
  if (made.context_ == nullptr) return Status::internal("libcrypto has no memory for a cipher");
  if (Status s = made.set_key(); !s.is_ok()) return s;
  return made;
}

Status RecordCipher::set_key() {
  Result<RecordKeys> keys = record_keys_of(secret_);
  if (!keys.is_ok()) return keys.status();
  iv_ = keys->iv;
  records_ = 0;
  EVP_CIPHER* const cipher = aes_gcm();
  const bool set = cipher != nullptr && ::EVP_CipherInit_ex2(context_.get(), cipher, keys->key.data(), nullptr,
                                                             encrypts_ ? 1 : 0, nullptr) == 1;
  return set ? Status() : Status::internal("libcrypto has no AES-128-GCM");
}

Status RecordCipher::change_key() {
  TrafficSecret next{};
  if (Status s = expand(secret_, "traffic upd", &next); !s.is_ok()) return s;
  secret_ = next;
  return set_key();
}

bool RecordCipher::begin(const std::byte* header) {
  std::array<std::uint8_t, 12> nonce = iv_;
  for (std::size_t i = 0; i < sizeof records_; ++i) {
    nonce[nonce.size() - 1 - i] ^= static_cast<std::uint8_t>(records_ >> (8 * i));
  }
  ++records_;
  int length = 0;
  return ::EVP_CipherInit_ex2(context_.get(), nullptr, nullptr, nonce.data(), -1, nullptr) == 1 &&
         ::EVP_CipherUpdate(context_.get(), nullptr, &length, bytes_of(header), kRecordHeaderBytes) == 1;
}

bool RecordCipher::update(const std::byte* in, std::size_t n, std::byte* out) {
  int length = 0;
  return n == 0 || ::EVP_CipherUpdate(context_.get(), bytes_of(out), &length, bytes_of(in), static_cast<int>(n)) == 1;
}

bool RecordCipher::end_encryption(std::byte* tag) {
  int length = 0;
  std::array<unsigned char, kRecordTagBytes> rest{};
  return ::EVP_CipherFinal_ex(context_.get(), rest.data(), &length) == 1 &&
         ::EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kRecordTagBytes, tag) == 1;
}

bool RecordCipher::end_decryption(const std::byte* tag) {
  int length = 0;
  std::array<unsigned char, kRecordTagBytes> rest{};
  return ::EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kRecordTagBytes, const_cast<std::byte*>(tag)) ==
             1 &&
         ::EVP_CipherFinal_ex(context_.get(), rest.data(), &length) == 1;
}

// ---- Sealing --------------------------------------------------------------------------------------

Result<RecordSealer> RecordSealer::make(const TrafficSecret& secret, std::uint64_t most_records) {
  Result<RecordCipher> cipher = RecordCipher::make(secret, true);
  if (!cipher.is_ok()) return cipher.status();
  return RecordSealer(std::move(*cipher), most_records);
}

bool RecordSealer::write(std::uint8_t type, std::span<const std::byte> head, std::span<const std::byte> payload,
                         std::byte* out) {
  const std::size_t inner = head.size() + payload.size() + 1;
  const std::size_t sealed = inner + kRecordTagBytes;
  std::memcpy(out, kDataBegin.data(), kDataBegin.size());
  out[3] = static_cast<std::byte>(sealed >> 8);
  out[4] = static_cast<std::byte>(sealed & 0xff);
  std::byte* const body = out + kRecordHeaderBytes;
  const std::byte last{type};
  return cipher_.begin(out) && cipher_.update(head.data(), head.size(), body) &&
         cipher_.update(payload.data(), payload.size(), body + head.size()) &&
         cipher_.update(&last, 1, body + inner - 1) && cipher_.end_encryption(body + inner);
}

Result<std::size_t> RecordSealer::seal(std::span<const std::byte> head, std::span<const std::byte> payload,
                                       std::byte* out) {
  std::size_t before = 0;
  if (cipher_.records() >= most_records_) {
    if (!write(kHandshakeType, {}, kKeyUpdate, out)) return Status::internal("libcrypto cannot encrypt");
    if (Status s = cipher_.change_key(); !s.is_ok()) return s;
    before = kKeyUpdateBytes;
  }
  if (!write(kDataType, head, payload, out + before)) return Status::internal("libcrypto cannot encrypt");
  return before + head.size() + payload.size() + kRecordOverhead;
}

// ---- Opening --------------------------------------------------------------------------------------

Result<RecordOpener> RecordOpener::make(const TrafficSecret& secret) {
  Result<RecordCipher> cipher = RecordCipher::make(secret, false);
  if (!cipher.is_ok()) return cipher.status();
  return RecordOpener(std::move(*cipher));
}

Result<std::size_t> RecordOpener::record_bytes(const std::byte* header) {
  const std::size_t sealed = std::to_integer<std::size_t>(header[3]) << 8 | std::to_integer<std::size_t>(header[4]);
  const bool is_data = std::memcmp(header, kDataBegin.data(), kDataBegin.size()) == 0;
  if (!is_data || sealed <= kRecordTagBytes || sealed > kMostSealedBytes) return damaged();
  return kRecordHeaderBytes + sealed;
}

Result<std::size_t> RecordOpener::open(std::span<const std::byte> record, std::byte* out) {
  Result<std::size_t> payload = failed_ ? Result<std::size_t>(damaged()) : decrypt(record, out);
  failed_ = !payload.is_ok();
  return payload;
}

// The last byte is the content's type, unless zeros follow that: so only then it may be among the bytes of `out`.
Result<std::size_t> RecordOpener::decrypt(std::span<const std::byte> record, std::byte* out) {
  if (record.size() < kRecordHeaderBytes) return damaged();
  Result<std::size_t> whole = record_bytes(record.data());
  if (!whole.is_ok() || *whole != record.size()) return damaged();
  const std::byte* const body = record.data() + kRecordHeaderBytes;
  std::size_t size = record.size() - kRecordOverhead;
  std::byte type{};
  const bool opened = cipher_.begin(record.data()) && cipher_.update(body, size, out) &&
                      cipher_.update(body + size, 1, &type) && cipher_.end_decryption(body + size + 1);
  if (!opened) return damaged();
  while (type == std::byte{0} && size > 0) type = out[--size];
  if (type == std::byte{kDataType}) return size;
  const bool is_update =
      type == std::byte{kHandshakeType} && size == kKeyUpdate.size() && std::memcmp(out, kKeyUpdate.data(), size) == 0;
  if (!is_update) return damaged();
  if (Status s = cipher_.change_key(); !s.is_ok()) return s;
  return std::size_t{0};
}

}  // namespace tutti::internal::net
