#include "net/address.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <span>

#include "base/config.h"
#include "base/log.h"
#include "os/kernel.h"
#include "os/unique_fd.h"

namespace tutti::internal::net {
namespace {

constexpr std::size_t kMaxAbstractName = 100;

bool is_ip(int family) {
  return family == AF_INET || family == AF_INET6;
}

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { os::kernel().freeifaddrs(list); }
};
using Interfaces = std::unique_ptr<ifaddrs, FreeInterfaces>;

// Null, and errno: they cannot be listed.
Interfaces interfaces() {
  ifaddrs* list = nullptr;
  return Interfaces(os::kernel().getifaddrs(&list) == 0 ? list : nullptr);
}

// The source address that the kernel would use for external hosts, if it has a route. Connecting a UDP socket sends
// nothing; the targets are documentation addresses (RFC 5737, RFC 3849).
bool preferred_source(int family, Address* source) {
  const Result<Address> target = parse_address(family == AF_INET ? "192.0.2.1:9" : "[2001:db8::1]:9");
  if (!target.is_ok()) return false;
  const UniqueFd fd(os::kernel().socket(family, SOCK_DGRAM));
  if (!fd.valid() || os::kernel().connect(fd.get(), target.value().get(), target.value().length()) != 0) return false;
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (os::kernel().getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return false;
  *source = Address(reinterpret_cast<sockaddr*>(&storage), length).with_port(0);
  return true;
}

bool is_link_local(const Address& address) {
  if (address.family() != AF_INET6) return false;
  const auto* in6 = reinterpret_cast<const sockaddr_in6*>(address.get());
  return IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr);
}

// The bytes of an address, without port and zone.
std::span<const std::byte> bytes_of(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in&>(address).sin_addr, 1));
  }
  if (address.sa_family != AF_INET6) return {};
  return std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, 1));
}

// REQUIRES: all three are of one family.
bool shares_prefix(const sockaddr& a, const sockaddr& b, const sockaddr& mask) {
  const std::span<const std::byte> bits = bytes_of(mask);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (((bytes_of(a)[i] ^ bytes_of(b)[i]) & bits[i]) != std::byte{0}) return false;
  }
  return !bits.empty();
}

std::string list_names(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool is_ipv4_link_local(const Address& address) {
  if (address.family() != AF_INET) return false;
  const auto* in = reinterpret_cast<const sockaddr_in*>(address.get());
  return (ntohl(in->sin_addr.s_addr) >> 16) == 0xa9fe;  // 169.254/16
}

// The kind of interface that its driver reports; empty if it reports none. Works in every network namespace, also
// without /sys.
std::string driver_of(const char* interface) {
  const UniqueFd fd(os::kernel().socket(AF_INET, SOCK_DGRAM));
  ethtool_drvinfo info{};
  info.cmd = ETHTOOL_GDRVINFO;
  ifreq request{};
  std::strncpy(request.ifr_name, interface, sizeof request.ifr_name - 1);
  request.ifr_data = reinterpret_cast<char*>(&info);
  if (!fd.valid() || ::ioctl(fd.get(), SIOCETHTOOL, &request) != 0) return {};
  return {info.driver, ::strnlen(info.driver, sizeof info.driver)};
}

// Whether other hosts probably have the same address: a bridge for containers or virtual machines, a dummy for
// services, or a link-local address.
bool is_common(const char* interface, const Address& address) {
  if (is_ipv4_link_local(address)) return true;
  const std::string driver = driver_of(interface);
  return driver == "bridge" || driver == "dummy";
}

}  // namespace

void put_first(std::vector<Address>* list, const Address& wanted) {
  const auto at = std::find_if(list->begin(), list->end(),
                               [&](const Address& each) { return each.with_port(0) == wanted.with_port(0); });
  if (at != list->end()) std::rotate(list->begin(), at, at + 1);
}

bool leads_to_peer(const std::vector<Address>& peer, const std::vector<std::string>& own) {
  if (peer.empty() || peer.front().is_loopback()) return false;
  return std::none_of(own.begin(), own.end(), [&](const std::string& text) {
    Result<Address> address = parse_address(text);
    return address.is_ok() && address->with_port(0) == peer.front().with_port(0);
  });
}

std::string list_addresses(const std::vector<Address>& list) {
  std::string text;
  for (const Address& address : list) text += (text.empty() ? "" : ", ") + address.text();
  return text;
}

void limit_addresses(std::vector<Address>* list, std::size_t most, const std::string& whose) {
  if (list->size() <= most) return;
  const std::vector<Address> rest(list->begin() + static_cast<std::ptrdiff_t>(most), list->end());
  list->resize(most);
  log::warn(
      fmt::format("{} has more than {} addresses and does not announce these to the other ranks: {}. Choose interfaces "
                  "with TUTTI_INTERFACE",
                  whose, most, list_addresses(rest)));
}

Address::Address(const sockaddr* address, socklen_t length) : length_(std::min<socklen_t>(length, sizeof storage_)) {
  std::memcpy(&storage_, address, length_);
}

Address Address::unix_abstract(const std::string& name) {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  const std::size_t size = std::min(name.size(), kMaxAbstractName);
  std::memcpy(un.sun_path + 1, name.data(), size);
  return {reinterpret_cast<const sockaddr*>(&un), static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size)};
}

Result<Address> Address::unix_path(const std::string& path) {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof un.sun_path) {
    return Status::invalid_argument(
        fmt::format("'{}' is not usable as the path of a Unix socket (1 to 107 bytes)", path));
  }
  std::memcpy(un.sun_path, path.c_str(), path.size() + 1);
  return Address(reinterpret_cast<const sockaddr*>(&un), sizeof un);
}

bool Address::is_loopback() const {
  if (family() == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(&storage_);
    return (ntohl(in->sin_addr.s_addr) >> 24) == 127;
  }
  if (family() != AF_INET6) return false;
  const auto* in6 = reinterpret_cast<const sockaddr_in6*>(&storage_);
  return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

std::uint16_t Address::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
  return 0;
}

Address Address::with_port(std::uint16_t port) const {
  Address copy = *this;
  if (family() == AF_INET) reinterpret_cast<sockaddr_in*>(&copy.storage_)->sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(&copy.storage_)->sin6_port = htons(port);
  return copy;
}

std::string Address::text() const {
  if (is_ip(family())) {
    char host[NI_MAXHOST];
    if (::getnameinfo(get(), length_, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "?";
    std::string text(family() == AF_INET ? "" : "[");
    text.append(host).append(family() == AF_INET ? ":" : "]:");
    return text.append(std::to_string(port()));
  }
  if (family() != AF_UNIX) return "?";
  const auto* un = reinterpret_cast<const sockaddr_un*>(&storage_);
  if (un->sun_path[0] != '\0') return un->sun_path;
  const std::size_t head = offsetof(sockaddr_un, sun_path) + 1;
  if (length_ <= head) return "unnamed";
  return std::string("@").append(un->sun_path + 1, length_ - head);
}

bool operator==(const Address& a, const Address& b) {
  return a.length_ == b.length_ && std::memcmp(&a.storage_, &b.storage_, a.length_) == 0;
}

Result<HostPort> split_host_port(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return Status::invalid_argument(fmt::format("'{}' is not host:port", text));
  std::string host = text.substr(0, colon);
  const auto port = parse_integer(text.substr(colon + 1), 0, 65535);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of("[]:") != std::string::npos) {
    return Status::invalid_argument(fmt::format("'{}': an IPv6 address is written [address]:port", text));
  }
  if (host.empty() || !port)
    return Status::invalid_argument(fmt::format("'{}' is not host:port with a port in 0..65535", text));
  return HostPort{host, static_cast<std::uint16_t>(*port)};
}

static Result<std::vector<Address>> look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) {
    const std::string what = fmt::format("cannot resolve host '{}'", host);
    if (error == EAI_SYSTEM || error == EAI_MEMORY) return Status::system(what, error == EAI_MEMORY ? ENOMEM : errno);
    const std::string text = what + ": " + ::gai_strerror(error);
    return (flags & AI_NUMERICHOST) != 0 ? Status::invalid_argument(text) : Status(Code::kSystemError, text);
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<Address> result;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (is_ip(entry->ai_family)) result.emplace_back(entry->ai_addr, entry->ai_addrlen);
  }
  if (result.empty()) return Status(Code::kSystemError, fmt::format("host '{}' has no IPv4 or IPv6 address", host));
  return result;
}

Result<Address> parse_address(const std::string& text) {
  Result<HostPort> parts = split_host_port(text);
  if (!parts.is_ok()) return parts.status();
  Result<std::vector<Address>> found = look_up(parts->host, parts->port, AI_NUMERICHOST);
  if (!found.is_ok()) return found.status();
  return found->front();
}

Result<std::vector<Address>> resolve(const std::string& host, std::uint16_t port) {
  return look_up(host, port, 0);
}

bool interface_matches(const std::string& filter, const std::string& name) {
  if (filter.empty()) return true;
  const bool exclude = filter[0] == '^';
  const bool exact = filter[exclude ? 1 : 0] == '=';
  std::size_t begin = (exclude ? 1U : 0U) + (exact ? 1U : 0U);
  bool found = false;
  while (begin <= filter.size() && !found) {
    const std::size_t comma = std::min(filter.find(',', begin), filter.size());
    const std::string item = filter.substr(begin, comma - begin);
    found = !item.empty() && (exact ? name == item : name.compare(0, item.size(), item) == 0);
    begin = comma + 1;
  }
  return found != exclude;
}

bool is_in_own_network(const Address& own, const Address& peer) {
  if (own.with_port(0) == peer.with_port(0) || peer.is_loopback()) return true;
  const Interfaces list = interfaces();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_netmask == nullptr || entry->ifa_addr->sa_family != peer.family()) {
      continue;
    }
    if ((entry->ifa_flags & IFF_UP) != 0 && shares_prefix(*entry->ifa_addr, *peer.get(), *entry->ifa_netmask)) {
      return true;
    }
  }
  return false;
}

Result<std::vector<Address>> interface_addresses(const std::string& filter) {
  const Interfaces list = interfaces();
  if (list == nullptr) return Status::system("getifaddrs", errno);
  std::vector<Address> outside;
  std::vector<Address> common;
  std::vector<Address> loopback;
  std::set<std::string> names;   // of those that have an address
  std::set<std::string> wanted;  // that match, with an address or without
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (!filter.empty() && interface_matches(filter, entry->ifa_name)) wanted.insert(entry->ifa_name);
    if (entry->ifa_addr == nullptr || !is_ip(entry->ifa_addr->sa_family) || (entry->ifa_flags & IFF_UP) == 0) continue;
    names.insert(entry->ifa_name);
    if (!interface_matches(filter, entry->ifa_name)) continue;
    const bool v4 = entry->ifa_addr->sa_family == AF_INET;
    const Address address(entry->ifa_addr, v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (is_link_local(address)) continue;
    (address.is_loopback() ? loopback : is_common(entry->ifa_name, address) ? common : outside).push_back(address);
  }
  outside.insert(outside.end(), common.begin(), common.end());
  for (const int family : {AF_INET6, AF_INET}) {
    Address source;
    if (preferred_source(family, &source)) put_first(&outside, source);
  }
  const bool asked = !filter.empty() && filter[0] != '^';
  if (outside.empty() || asked) outside.insert(outside.end(), loopback.begin(), loopback.end());
  if (outside.empty()) {
    if (filter.empty() || names.empty())
      return Status::invalid_usage("this host has no interface with an IPv4 or IPv6 address");
    const std::string bare =
        wanted.empty() ? "" : fmt::format("; {}: down, or without an address beyond its link", list_names(wanted));
    return Status::invalid_usage(fmt::format(
        "no interface with an address matches \"{}\" (TUTTI_INTERFACE or config.interface). Available: {}{}", filter,
        list_names(names), bare));
  }
  return outside;
}

std::string interface_of(const Address& own) {
  const Interfaces list = interfaces();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || !is_ip(entry->ifa_addr->sa_family)) continue;
    const bool v4 = entry->ifa_addr->sa_family == AF_INET;
    if (Address(entry->ifa_addr, v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)) == own) return entry->ifa_name;
  }
  return {};
}

double gbits_of_interface(const Address& own) {
  const std::string name = interface_of(own);
  if (name.empty()) return 0;
  std::ifstream file(fmt::format("/sys/class/net/{}/speed", name));
  double mbits = 0;
  return file >> mbits && mbits > 0 ? mbits / 1000 : 0;
}

}  // namespace tutti::internal::net
