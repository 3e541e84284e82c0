// What ranks know of each other, and what it takes to connect to one.
//
// Threads: PeerInfo::local(), host_name(), random_socket_name() and process_token() any; the rest are values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace tutti::internal {

// What every rank knows of every other. The control tree carries it as bytes and reads none of it.
struct PeerInfo {
  std::int32_t rank = 0;
  std::int32_t pid = 0;
  std::array<std::uint8_t, 16> boot{};     // kernel's boot id: the machine, whatever its hostname says
  std::array<std::uint8_t, 16> process{};  // random per process: the same value means one address space
  std::uint64_t network_namespace = 0;     // inode of /proc/self/ns/net
  std::string hostname;                    // for messages only
  std::string unix_address;                // abstract Unix socket name of the Connector, empty if none
  std::string unix_path;                   // the same by path, reachable from other network namespaces; or empty
  std::vector<std::string> tcp_addresses;  // "host:port", "[v6]:port" of the Connector, best first
  std::string settings;                    // packed by who reads them (epoch/membership.h)
  // This process: everything but the Connector's addresses and the settings.
  static Result<PeerInfo> local(int rank);
  // By boot id. A machine whose kernel tells none equals no other.
  [[nodiscard]] bool same_machine(const PeerInfo& other) const;
  [[nodiscard]] std::string serialize() const;
  static Result<PeerInfo> parse(const std::string& bytes);
};

// Of a Unix socket. parse() refuses a unix_path that ends in any other name.
Result<std::string> random_socket_name();

// For messages; "?" if the kernel tells none.
std::string host_name();

// Drawn once per process, anew in a forked child: the same value means one address space.
Result<std::array<std::uint8_t, 16>> process_token();

}  // namespace tutti::internal
