// The description of RDMA ports that ranks exchange, and the pairing of two ranks' ports.
//
// Threads: any; nothing here has state.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "memory/registration.h"
#include "net/frame.h"

namespace tutti::internal::transport::verbs {

using memory::kMaxRails;
inline constexpr int kMostChosenRails = 4;  // more only on request: each costs slots and queue pairs

enum class Fabric : std::uint8_t { kInfiniband, kRoce, kIwarp };
// "InfiniBand", "RoCE", "iWARP"
const char* name_of(Fabric fabric);

// One active port with the GID that a rank would use.
struct Port {
  std::string device;  // "mlx5_0"
  int port = 1;
  Fabric fabric = Fabric::kRoce;
  int gid_index = 0;
  std::array<std::uint8_t, 16> gid{};
  std::string gid_type;  // "RoCE v2", "RoCE v1", "IB"
  std::string netdev;    // of the GID, if it has one: "eth0"
  std::string address;   // IP address of the GID, or the address by which iWARP connects; or empty
  // Ports with the same text can certainly reach each other: "10.0.0.0/24", "fd00::/64", "ib fe80000000000000".
  std::string subnet;
  std::uint16_t lid = 0;
  int mtu_bytes = 1024;     // active MTU
  double gbits = 0;         // rate of the port, 10^9 bits a second
  int numa_node = -1;       // of the device; -1: unknown
  bool near = true;         // the rank may run on a processor of that node, or it is unknown
  bool soft_iwarp = false;  // posts are sends on a socket, in the kernel, which may raise SIGPIPE
};

// For the address book.
void pack(net::Packer* packer, const std::vector<Port>& ports);
// Adds to *ports. False if the data is invalid, or has more than kMaxRails ports.
bool unpack(net::Unpacker* unpacker, std::vector<Port>* ports);

// The rails: (index in a, index in b) for each. Both ranks compute the same; a belongs to the lower rank. Ranks of one
// machine spread over its ports by their local ranks, near ports first. The two ports of a rail have the same fabric,
// GID type and address family; if any pair has the same subnet, only such pairs are used. No port is in two rails.
// wanted_rails 0: a rank's share of its machine's ports, at least 1 and at most kMostChosenRails, the smaller of both
// sides. There may be fewer rails. Empty: no pair of ports can communicate.
struct LocalPosition {
  int local_rank = 0;  // among the ranks of its machine, from 0
  int local_ranks = 1;
};
struct Rail {
  int a = 0;
  int b = 0;
};
std::vector<Rail> pair_ports(const std::vector<Port>& a, LocalPosition local_a, const std::vector<Port>& b,
                             LocalPosition local_b, int wanted_rails);

}  // namespace tutti::internal::transport::verbs
