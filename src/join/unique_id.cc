#include "join/unique_id.h"

#include <fmt/core.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "base/hex.h"

namespace tutti::internal {
namespace {

constexpr std::array<std::uint8_t, 4> kMagic = {'T', 'U', 'i', 'd'};
constexpr std::uint8_t kVersion = 2;
constexpr std::size_t kHeadBytes = 8;
constexpr std::size_t kFirstAddress = kHeadBytes + sizeof(Secret);
constexpr std::uint8_t kIpv6 = 0x80;  // of a run's first byte
constexpr std::size_t kIpv4Bytes = 4;
constexpr std::size_t kIpv6Bytes = 16;

bool is_ipv6(const net::Address& address) {
  return address.family() == AF_INET6;
}

net::Address make_address(bool ipv6, const std::uint8_t* bytes, std::uint16_t port) {
  if (!ipv6) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    std::memcpy(&in.sin_addr, bytes, kIpv4Bytes);
    return net::Address(reinterpret_cast<sockaddr*>(&in), sizeof in).with_port(port);
  }
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  std::memcpy(&in6.sin6_addr, bytes, kIpv6Bytes);
  return net::Address(reinterpret_cast<sockaddr*>(&in6), sizeof in6).with_port(port);
}

// Writes the addresses from the first on, as many as fit, and returns their number.
std::size_t pack(const std::vector<net::Address>& addresses, UniqueIdBytes* id) {
  std::size_t at = kFirstAddress;
  std::size_t run = 0;  // where its first byte is
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const sockaddr* address = addresses[i].get();
    const bool ipv6 = is_ipv6(addresses[i]);
    const bool begins = i == 0 || ipv6 != is_ipv6(addresses[i - 1]);
    const std::size_t size = ipv6 ? kIpv6Bytes : kIpv4Bytes;
    if (at + (begins ? 1 : 0) + size > id->size()) return i;
    if (begins) {
      run = at++;
      (*id)[run] = ipv6 ? kIpv6 : 0;
    }
    ++(*id)[run];
    const void* const bytes = ipv6
                                  ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr)
                                  : &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    std::memcpy(id->data() + at, bytes, size);
    at += size;
  }
  return addresses.size();
}

// The reverse. False if they are not `count` addresses.
bool unpack(const UniqueIdBytes& id, std::size_t count, std::uint16_t port, std::vector<net::Address>* addresses) {
  std::size_t at = kFirstAddress;
  while (addresses->size() < count) {
    if (at >= id.size()) return false;
    const bool ipv6 = (id[at] & kIpv6) != 0;
    const std::size_t run = id[at++] & (kIpv6 - 1U);
    const std::size_t size = ipv6 ? kIpv6Bytes : kIpv4Bytes;
    if (run == 0 || addresses->size() + run > count || at + run * size > id.size()) return false;
    for (std::size_t i = 0; i < run; ++i, at += size) addresses->push_back(make_address(ipv6, id.data() + at, port));
  }
  return true;
}

}  // namespace

std::size_t fitting_addresses(const std::vector<net::Address>& addresses) {
  UniqueIdBytes unused{};
  return pack(addresses, &unused);
}

UniqueIdBytes encode_unique_id(const RootContact& contact) {
  UniqueIdBytes id{};
  const std::uint16_t port = contact.addresses.empty() ? std::uint16_t{0} : contact.addresses.front().port();
  std::copy(kMagic.begin(), kMagic.end(), id.begin());
  id[4] = kVersion;
  id[6] = static_cast<std::uint8_t>(port & 0xff);
  id[7] = static_cast<std::uint8_t>(port >> 8);
  std::copy(contact.secret.begin(), contact.secret.end(), id.begin() + kHeadBytes);
  id[5] = static_cast<std::uint8_t>(pack(contact.addresses, &id));
  return id;
}

Result<RootContact> decode_unique_id(const UniqueIdBytes& id) {
  if (!std::equal(kMagic.begin(), kMagic.end(), id.begin())) {
    return Status::invalid_argument("this is not a unique id of tutti. Copy all 128 bytes from tuttiGetUniqueId");
  }
  if (id[4] != kVersion) {
    return Status::invalid_argument(
        fmt::format("the unique id was made by another version of tutti (id version {}, here {})", id[4], kVersion));
  }
  const std::size_t count = id[5];
  const auto port = static_cast<std::uint16_t>(id[6] | id[7] << 8);
  RootContact contact;
  std::copy_n(id.begin() + kHeadBytes, contact.secret.size(), contact.secret.begin());
  const bool sound = count >= 1 && port != 0 && unpack(id, count, port, &contact.addresses);
  if (!sound)
    return Status::invalid_argument("the unique id is damaged. Copy all 128 bytes with memcpy: it is not a string");
  return contact;
}

std::string unique_id_to_hex(const UniqueIdBytes& id) {
  return to_hex(id);
}

Result<UniqueIdBytes> unique_id_from_hex(const std::string& hex) {
  UniqueIdBytes id{};
  if (hex.size() != 2 * id.size()) return Status::invalid_argument("a unique id in hexadecimal has 256 digits");
  if (!from_hex(hex, id)) return Status::invalid_argument("not hexadecimal");
  return id;
}

}  // namespace tutti::internal
