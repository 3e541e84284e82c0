// The contents of a unique id: the addresses of the root service, and the job's secret.
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

struct RootContact {
  Secret secret{};
  std::vector<net::Address> addresses;  // IPv4 or IPv6, the same port in all; best first
};

// The number of these addresses, from the first on, that fit into a unique id: 21 for IPv4, 5 for IPv6.
[[nodiscard]] std::size_t fitting_addresses(const std::vector<net::Address>& addresses);

// Layout: "TUid", version (2), number of addresses, port (2 bytes, little endian), secret (32), then runs of addresses
// of the same family: their number, plus 128 for IPv6, and 4 or 16 bytes each; zeros to the end.
// REQUIRES: all addresses fit.
UniqueIdBytes encode_unique_id(const RootContact& contact);
// kInvalidArgument if the bytes are not a unique id of this version.
Result<RootContact> decode_unique_id(const UniqueIdBytes& id);

// As text of 256 hexadecimal digits, for launchers' key-value stores.
std::string unique_id_to_hex(const UniqueIdBytes& id);
Result<UniqueIdBytes> unique_id_from_hex(const std::string& hex);

}  // namespace tutti::internal
