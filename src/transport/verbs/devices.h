// Which RDMA ports this machine has, which of them a rank uses, and which of two ranks' ports belong together.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/verbs/options.h"

namespace tutti::transport::verbs {

inline constexpr std::size_t kMaxRails = 8;

enum class Fabric : std::uint8_t { kInfiniband, kRoce, kIwarp };

// One active port with the GID that a rank would use.
struct Port {
  std::string device;  // "mlx5_0"
  int port = 1;
  Fabric fabric = Fabric::kRoce;
  int gid_index = 0;
  std::array<std::uint8_t, 16> gid{};
  std::string gid_type;  // "RoCE v2", "RoCE v1", "IB"
  std::string netdev;    // of the GID, where there is one: "eth0"
  std::string address;   // IP address that the GID stands for, or that iWARP connects by; or empty
  // Ports with the same text can reach each other for sure: "10.0.0.0/24", "fd00::/64", "ib fe80000000000000".
  std::string subnet;
  std::uint16_t lid = 0;
  int mtu_bytes = 1024;  // active MTU
  double gbits = 0;      // rate of the port, 10^9 bits a second
  int numa_node = -1;    // of the device; -1: unknown
  bool near = true;      // the rank may run on a processor of the device's NUMA node
};

// All ports of this machine, usable or not, for people: a port that is not usable has the reason in `trouble`.
struct Finding {
  Port port;
  std::string trouble;  // empty: usable
};
// kSystemError where libibverbs is missing or finds no device, with the remedy in the text.
Result<std::vector<Finding>> find_ports(const Options& options);

// The ports that this rank offers its peers, best first: those that the options name, in that order, else all usable
// ones of the best kind (near before far, fast before slow, then by name). kSystemError with the remedy if there is
// none; kInvalidUsage if the options name what does not exist or is not active.
Result<std::vector<Port>> choose_ports(const Options& options);

// One line of text per port, for the address book; no line feeds or '=' inside, ';' between ports.
std::string to_text(const std::vector<Port>& ports);
Result<std::vector<Port>> ports_from_text(const std::string& text);

// Which of a's ports talks to which of b's: (index in a, index in b) per rail. Both ranks compute the same, a being
// the lower rank. `index_a` of `ranks_a` ranks that share a's machine, and so for b: ranks of one machine spread
// over its ports. Same fabric always, same subnet where there is such a pair. Empty: no pair can talk.
struct Seat {
  int index = 0;
  int ranks = 1;
};
struct Rail {
  int a = 0;
  int b = 0;
};
std::vector<Rail> pair_ports(const std::vector<Port>& a, Seat seat_a, const std::vector<Port>& b, Seat seat_b,
                             int wanted_rails);

}  // namespace tutti::transport::verbs
