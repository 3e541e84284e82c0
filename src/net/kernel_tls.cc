#include "net/kernel_tls.h"

#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>

#include <cerrno>
#include <cstring>

#include "os/kernel.h"

namespace tutti::internal::net {
namespace {

constexpr char kProtocol[] = "tls";

Status set_direction(int socket, int direction, const TrafficSecret& secret) {
  Result<RecordKeys> keys = record_keys_of(secret);
  if (!keys.is_ok()) return keys.status();
  tls12_crypto_info_aes_gcm_128 info{};
  info.info.version = TLS_1_3_VERSION;
  info.info.cipher_type = TLS_CIPHER_AES_GCM_128;
  static_assert(sizeof info.salt + sizeof info.iv == sizeof keys->iv && sizeof info.key == sizeof keys->key);
  std::memcpy(info.salt, keys->iv.data(), sizeof info.salt);
  std::memcpy(info.iv, keys->iv.data() + sizeof info.salt, sizeof info.iv);
  std::memcpy(info.key, keys->key.data(), sizeof info.key);
  const int result = os::kernel().setsockopt(socket, SOL_TLS, direction, &info, sizeof info);
  const int error = errno;
  ::OPENSSL_cleanse(&info, sizeof info);
  ::OPENSSL_cleanse(&*keys, sizeof *keys);
  return result == 0 ? Status() : Status::system("kernel TLS", error);
}

}  // namespace

// Without keys, a socket with the protocol passes all bytes as they are.
Result<bool> begin_kernel_tls(int socket, const TrafficSecrets& secrets) {
  if (os::kernel().setsockopt(socket, IPPROTO_TCP, TCP_ULP, kProtocol, sizeof kProtocol - 1) != 0) return false;
  if (!set_direction(socket, TLS_RX, secrets.receiving).is_ok()) return false;
  if (Status s = set_direction(socket, TLS_TX, secrets.sending); !s.is_ok()) return s;
  return true;
}

}  // namespace tutti::internal::net
