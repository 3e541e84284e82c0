// Short messages that only holders of a secret can read, over connections that are not encrypted.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"
#include "net/auth.h"

namespace tutti::internal::net {

inline constexpr std::size_t kSealBytes = 12 + 16;  // more than the message: nonce and tag

// AES-256-GCM (NIST SP 800-38D) with a random nonce, under a key that is derived from the secret.
Result<std::string> seal(const Secret& secret, const std::string& message);
// kRemoteError: it was not sealed with this secret, or is damaged.
Result<std::string> unseal(const Secret& secret, const std::string& sealed);

}  // namespace tutti::internal::net
