// Socket addresses as values: IPv4, IPv6 and Unix (abstract or by path).
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace tutti::internal::net {

class Address {
 public:
  Address() = default;
  Address(const sockaddr* address, socklen_t length);

  // A name in the abstract namespace of Unix sockets: it has no file, disappears with its last socket, and is visible
  // only within one network namespace. REQUIRES: at most 100 bytes.
  static Address unix_abstract(const std::string& name);
  // A file system path, visible wherever the path is. kInvalidArgument if it does not fit (107 bytes).
  static Result<Address> unix_path(const std::string& path);

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t length() const { return length_; }
  [[nodiscard]] int family() const { return storage_.ss_family; }
  [[nodiscard]] bool is_loopback() const;
  // 0 for Unix sockets.
  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] Address with_port(std::uint16_t port) const;
  // "1.2.3.4:5", "[::1]:5", "@name" (abstract) or the path.
  [[nodiscard]] std::string text() const;

  friend bool operator==(const Address& a, const Address& b);

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

// Splits "host:port" or "[host]:port"; makes no look-up. kInvalidArgument if malformed.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
Result<HostPort> split_host_port(const std::string& text);

// Numeric addresses only ("1.2.3.4:5", "[::1]:5"): never blocks.
Result<Address> parse_address(const std::string& text);

// All addresses of a host name (or numeric address), in the order the resolver prefers. May block for
// as long as the system's resolver does.
Result<std::vector<Address>> resolve(const std::string& host, std::uint16_t port);

// Whether `name` matches a TUTTI_INTERFACE filter: a comma-separated list of prefixes. With "=" before the list, names
// must be equal; with "^", matching names are excluded. An empty filter matches all.
[[nodiscard]] bool interface_matches(const std::string& filter, const std::string& name);

// This host's addresses on interfaces that are up and match the filter, with port 0, best first: the address that the
// routing table prefers for external hosts, then the others, never IPv6 link-local. Last come addresses that many hosts
// have: bridges of containers and virtual machines, dummies, IPv4 link-local. Loopback is included only if there is no
// other address or if the filter names it (prefix or "=", not "^"). kInvalidUsage if no interface matches a non-empty
// filter.
Result<std::vector<Address>> interface_addresses(const std::string& filter);

// The limit of addresses of a listener that a rank announces. Few hosts have more networks besides bridges, which come
// last; and trying an address without an answer takes time.
inline constexpr std::size_t kMaxAddresses = 32;
// Cuts the list to `most`, and warns about the omitted ones. `whose`: the owner of the addresses.
void limit_addresses(std::vector<Address>* list, std::size_t most, const std::string& whose);
// Moves the address that equals `wanted`, except for its port, to the front; does nothing if there is none.
void put_first(std::vector<Address>* list, const Address& wanted);
// Whether the first address of a peer can only be its host's, as far as this host knows. It is the one by which its
// host and the root were connected (or the one that the peer's routing table prefers), which is not another host's
// unless networks of the job use the same private addresses. `own`: this host's addresses, as text with ports. If the
// address is one of them (say, a bridge of containers that each host has), it leads back to this host.
[[nodiscard]] bool leads_to_peer(const std::vector<Address>& peer, const std::vector<std::string>& own);
// "10.0.0.1:4000, 10.1.0.1:4000".
[[nodiscard]] std::string list_addresses(const std::vector<Address>& list);
// Whether packets from `own`, an address of this host, to `peer` stay in a network to which one of its interfaces
// belongs. False if the interfaces cannot be listed.
[[nodiscard]] bool is_in_own_network(const Address& own, const Address& peer);
// The interface of that address; empty if this host has none.
[[nodiscard]] std::string interface_of(const Address& own);
// The rate of the interface in one direction, as the kernel reports it (virtual interfaces report any value). 0:
// unknown, as for loopback.
[[nodiscard]] double gbits_of_interface(const Address& own);

}  // namespace tutti::internal::net
