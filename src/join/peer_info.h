// The data that ranks have about each other, including how to connect.
//
// Threads: PeerInfo::local(), host_name(), random_socket_name() and process_token() any; the rest are values.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace tutti::internal {

// The description of a rank, which every other rank has. The control tree carries it as opaque bytes.
struct PeerInfo {
  std::int32_t rank = 0;  // in the communicator that joined
  std::int32_t pid = 0;
  std::array<std::uint8_t, 16> boot{};     // kernel's boot id: identifies the machine, independent of its hostname
  std::array<std::uint8_t, 16> process{};  // random per process: the same value means one address space
  std::uint64_t network_namespace = 0;     // inode of /proc/self/ns/net
  std::string hostname;                    // for messages only
  std::string unix_address;                // abstract Unix socket name of the Connector, empty if none
  std::string unix_path;                   // the same by path, reachable from other network namespaces; or empty
  std::vector<std::string> tcp_addresses;  // "host:port", "[v6]:port" of the Connector, best first
  std::string settings;                    // packed and read by epoch/membership.h
  // This process: everything except the Connector's addresses and the settings.
  static Result<PeerInfo> local(int rank);
  // By boot id. A machine without a boot id equals no other.
  [[nodiscard]] bool same_machine(const PeerInfo& other) const {
    // Every rank compares itself with every other one: two words, which compilers do not make of an array of bytes.
    using Words = std::array<std::uint64_t, 2>;
    const auto mine = std::bit_cast<Words>(boot);
    return mine == std::bit_cast<Words>(other.boot) && mine != Words();
  }
  [[nodiscard]] std::string serialize() const;
  static Result<PeerInfo> parse(const std::string& bytes);
};

// A name for a Unix socket. parse() refuses a unix_path with any other form of name.
Result<std::string> random_socket_name();

// For messages; "?" if unknown.
std::string host_name();

// Generated once for each process, again in a forked child: the same value means the same address space.
Result<std::array<std::uint8_t, 16>> process_token();

}  // namespace tutti::internal
