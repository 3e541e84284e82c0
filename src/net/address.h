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

  // A name in the abstract namespace of Unix sockets: no file, gone with its last socket, and visible
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

// "host:port" or "[host]:port" in its parts; nothing is looked up. kInvalidArgument if malformed.
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

// Whether `name` passes a TUTTI_INTERFACE filter: a comma list of prefixes; with "=" in front of the
// list the names must be equal, with "^" the matching ones are excluded. An empty filter passes all.
[[nodiscard]] bool interface_matches(const std::string& filter, const std::string& name);

// This host's own addresses on interfaces that are up and pass the filter, port 0, best first: the one
// that the routing table prefers for the outside, then the others, IPv6 link-local never. Last those of interfaces that
// many hosts have with the same address: bridges of containers and virtual machines, dummies, IPv4 link-local. Loopback
// comes only if nothing else is there or if the filter names it (prefix or "=", not "^").
// kInvalidUsage if a filter was given and nothing passes it.
Result<std::vector<Address>> interface_addresses(const std::string& filter);

// How many addresses of a listener a rank tells others. Few hosts have so many networks beside their bridges, which
// come last, and a rank that tries an address without an answer loses time.
inline constexpr std::size_t kMaxAddresses = 32;
// Cuts the list to `most`, and warns of those that are left out. `whose`: what they are addresses of.
void limit_addresses(std::vector<Address>* list, std::size_t most, const std::string& whose);
// Puts the address first that is `wanted` but for its port; nothing if there is none.
void put_first(std::vector<Address>* list, const Address& wanted);
// "10.0.0.1:4000, 10.1.0.1:4000".
[[nodiscard]] std::string list_addresses(const std::vector<Address>& list);
// The interface of that address; empty if this host has none.
[[nodiscard]] std::string interface_of(const Address& own);
// How fast it is, one direction, as the kernel says (of virtual ones what they claim). 0: it does not, as of loopback.
[[nodiscard]] double gbits_of_interface(const Address& own);

}  // namespace tutti::internal::net
