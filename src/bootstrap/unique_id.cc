#include "bootstrap/unique_id.h"

#include <fmt/core.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "base/hex.h"

namespace tutti::internal {
namespace {

constexpr std::array<std::uint8_t, 4> kMagic = {'T', 'U', 'i', 'd'};
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kHeadBytes = 8;
constexpr std::size_t kAddressBytes = 17;
constexpr std::size_t kFirstAddress = kHeadBytes + sizeof(Secret);
static_assert(kFirstAddress + kMaxIdAddresses * kAddressBytes <= kUniqueIdBytes);

net::Address make_address(const std::uint8_t* entry, std::uint16_t port) {
  if (entry[0] == 4) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    std::memcpy(&in.sin_addr, entry + 1, sizeof in.sin_addr);
    return net::Address(reinterpret_cast<sockaddr*>(&in), sizeof in).with_port(port);
  }
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  std::memcpy(&in6.sin6_addr, entry + 1, sizeof in6.sin6_addr);
  return net::Address(reinterpret_cast<sockaddr*>(&in6), sizeof in6).with_port(port);
}

int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

}  // namespace

UniqueIdBytes encode_unique_id(const RootContact& contact) {
  UniqueIdBytes id{};
  const std::size_t count = std::min(contact.addresses.size(), kMaxIdAddresses);
  const std::uint16_t port = count > 0 ? contact.addresses.front().port() : std::uint16_t{0};
  std::copy(kMagic.begin(), kMagic.end(), id.begin());
  id[4] = kVersion;
  id[5] = static_cast<std::uint8_t>(count);
  id[6] = static_cast<std::uint8_t>(port & 0xff);
  id[7] = static_cast<std::uint8_t>(port >> 8);
  std::copy(contact.secret.begin(), contact.secret.end(), id.begin() + kHeadBytes);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint8_t* entry = id.data() + kFirstAddress + i * kAddressBytes;
    const sockaddr* address = contact.addresses[i].get();
    if (address->sa_family == AF_INET) {
      entry[0] = 4;
      std::memcpy(entry + 1, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
    } else {
      entry[0] = 6;
      std::memcpy(entry + 1, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 16);
    }
  }
  return id;
}

Result<RootContact> decode_unique_id(const UniqueIdBytes& id) {
  if (!std::equal(kMagic.begin(), kMagic.end(), id.begin())) {
    return Status::invalid_argument("this is not a unique id of tutti (was it copied whole from tuttiGetUniqueId?)");
  }
  if (id[4] != kVersion) {
    return Status::invalid_argument(
        fmt::format("the unique id was made by another version of tutti (id version {}, here {})", id[4], kVersion));
  }
  const std::size_t count = id[5];
  const auto port = static_cast<std::uint16_t>(id[6] | id[7] << 8);
  RootContact contact;
  std::copy_n(id.begin() + kHeadBytes, contact.secret.size(), contact.secret.begin());
  bool sound = count >= 1 && count <= kMaxIdAddresses && port != 0;
  for (std::size_t i = 0; sound && i < count; ++i) {
    const std::uint8_t* entry = id.data() + kFirstAddress + i * kAddressBytes;
    sound = entry[0] == 4 || entry[0] == 6;
    contact.addresses.push_back(make_address(entry, port));
  }
  if (!sound) return Status::invalid_argument("the unique id is damaged");
  return contact;
}

std::string unique_id_to_hex(const UniqueIdBytes& id) {
  return to_hex(id);
}

Result<UniqueIdBytes> unique_id_from_hex(const std::string& hex) {
  UniqueIdBytes id{};
  if (hex.size() != 2 * id.size()) return Status::invalid_argument("a unique id in hexadecimal has 256 digits");
  for (std::size_t i = 0; i < id.size(); ++i) {
    const int high = hex_value(hex[2 * i]);
    const int low = hex_value(hex[2 * i + 1]);
    if (high < 0 || low < 0) return Status::invalid_argument("not hexadecimal");
    id[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return id;
}

}  // namespace tutti::internal
