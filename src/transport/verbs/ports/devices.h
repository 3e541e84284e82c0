// Which RDMA ports this machine has, which of them a rank uses, and which of two ranks' ports belong together.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "memory/registration.h"
#include "net/frame.h"
#include "transport/verbs/options.h"
#include "transport/verbs/ports/machine.h"

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
  std::string netdev;    // of the GID, where there is one: "eth0"
  std::string address;   // IP address that the GID stands for, or that iWARP connects by; or empty
  // Ports with the same text can reach each other for sure: "10.0.0.0/24", "fd00::/64", "ib fe80000000000000".
  std::string subnet;
  std::uint16_t lid = 0;
  int mtu_bytes = 1024;  // active MTU
  double gbits = 0;      // rate of the port, 10^9 bits a second
  int numa_node = -1;    // of the device; -1: unknown
  bool near = true;      // the rank may run on a processor of that node, or it is unknown
};

// An entry of a port's GID table.
struct Gid {
  int index = 0;
  std::array<std::uint8_t, 16> bytes{};
  std::string type;    // as Port::gid_type
  std::string netdev;  // empty: none, or none in this network namespace
};

// All ports of this machine, usable or not, for people: a port that is not usable has the reason in `trouble`.
struct Finding {
  Port port;
  std::string trouble;  // empty: usable
  std::string state;    // "active", "down", ...; empty: the device could not be opened
  int max_mtu_bytes = 0;
  std::vector<Gid> gids;
};
// kSystemError where libibverbs is missing or finds no device, with the remedy in the text. `far_nodes`: the NUMA nodes
// that have processors, but none that this rank may run on. Any thread.
Result<std::vector<Finding>> find_ports(const Options& options, const std::vector<int>& far_nodes,
                                        const Roots& roots = {});

// Whether this build has RDMA and libibverbs can be opened: kSystemError with the remedy if not. Any thread.
Status check_library();
// Whether the device's driver can register memory of other devices by a dmabuf; what stands against it is in *why.
// Opens the device. Any thread.
bool supports_dmabuf(const std::string& device, std::string* why);

// The ports that this rank offers its peers, best first, at most kMaxRails: those that the options name, in that
// order, else all usable ones of the best kind (near before far, fast before slow, then by name). Of the best kind is
// what has the fabric of the fastest port and at least half its rate: rails of a pair get equal shares. kSystemError
// with the remedy if there is none; kInvalidUsage if the options name what does not exist or is not active.
Result<std::vector<Port>> choose_ports(const Options& options, const std::vector<int>& far_nodes);
// The rule of choose_ports().
Result<std::vector<Port>> choose_among(const std::vector<Finding>& findings, const Options& options);
// For people: of each finding whether choose_among() takes it, and why.
struct Reason {
  int position = -1;  // among the chosen, from 0; -1: not chosen
  std::string why;
};
std::vector<Reason> reasons(const std::vector<Finding>& findings, const Options& options);

// The entry that stands for a port: wanted_index if that is not negative, else RoCE v2 of an IPv4 address, of a global
// IPv6 address, of a link-local one, RoCE v1; of equals one whose interface is in this network namespace, then the
// first. Null if there is none.
const Gid* choose_gid(const std::vector<Gid>& gids, int wanted_index);
// The IP address that a GID of RoCE stands for; empty for others (IPv6 link-local has one).
std::string address_of(const Gid& gid);

// For the address book.
void pack(net::Packer* packer, const std::vector<Port>& ports);
// Adds to *ports. False if these are no ports, or more than kMaxRails.
bool unpack(net::Unpacker* unpacker, std::vector<Port>* ports);

// Which of a's ports talks to which of b's: (index in a, index in b) per rail. Both ranks compute the same, a being
// the lower rank. Ranks of one machine spread over its ports by their local ranks, near ports first. Same fabric, type
// of GID and family of addresses always; only same subnets where there is such a pair. No port is in two rails.
// wanted_rails 0: a rank's share of its machine's ports, at least 1 and at most kMostChosenRails, the lesser of both
// sides. There may be fewer. Empty: no pair can talk.
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
