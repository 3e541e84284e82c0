// What a unique id holds: how to reach the root service, and the job's secret.
//
// Threads: any; nothing here has state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/address.h"
#include "net/auth.h"

namespace tutti::internal {

inline constexpr std::size_t kUniqueIdBytes = 128;
using UniqueIdBytes = std::array<std::uint8_t, kUniqueIdBytes>;
using net::Secret;

inline constexpr std::size_t kMaxIdAddresses = 4;

struct RootContact {
  Secret secret{};
  std::vector<net::Address> addresses;  // IPv4 or IPv6, the same port in all; at most kMaxIdAddresses
};

// Layout: "TUid", version (1), number of addresses, port (2 bytes, little endian), secret (32), then per
// address its family (4 or 6) and 16 bytes (an IPv4 address in the first four); zeros to the end.
UniqueIdBytes encode_unique_id(const RootContact& contact);
// kInvalidArgument if the bytes are not a unique id of this version.
Result<RootContact> decode_unique_id(const UniqueIdBytes& id);

// As text of 256 hexadecimal digits, for launchers' key-value stores.
std::string unique_id_to_hex(const UniqueIdBytes& id);
Result<UniqueIdBytes> unique_id_from_hex(const std::string& hex);

}  // namespace tutti::internal
