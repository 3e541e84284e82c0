// The machines of a job as a graph: what is in what, what joins what, and how fast. Plain data, built by detection, by
// generators or from a file; drawn, written and simulated.
//
// Nodes form a tree: the network's switches above, below them hosts, in these packages, NUMA nodes, PCI switches, GPUs
// and network ports. An edge to the parent may have a rate and a latency. Beside the tree there are links between
// children of one node: cables between two (NVLink, UPI, WAN) and crossbars that join many (NVSwitch).
//
// The way of a message: up from the sender's node to the lowest node that is above both, and down again; where children
// of that node that are on the way are joined by links, over these. Between hosts it leaves by a network port of
// the sender's host and arrives at one of the receiver's; the part outside is the way between the nodes of the network
// to which these ports lead.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace tutti::internal::topology {

enum class NodeKind : std::uint8_t { kNetwork, kHost, kPackage, kNumaNode, kPciSwitch, kGpu, kPort };
// "network", "host", "package", "numa", "pci", "gpu", "port".
const char* name_of(NodeKind kind);
inline constexpr int kNodeKinds = 7;

// One direction; both directions are alike and do not hinder each other. 0: unknown, and taken for no limit.
struct Speed {
  double gbytes_per_second = 0;  // 10^9 bytes
  double latency_us = 0;
  bool operator==(const Speed&) const = default;
};

struct Node {
  NodeKind kind = NodeKind::kHost;
  std::string name;          // of its own among the children of its parent
  std::int32_t parent = -1;  // lower than its own number; -1: none
  Speed up;                  // to the parent
  // Of a port: the node of the network to which it leads, and how fast.
  std::int32_t leads_to = -1;
  Speed out;
  // What else is known; empty or 0: unknown.
  std::string about;       // processor model, GPU's name, "InfiniBand"
  std::string processors;  // of a NUMA node: "0-3,8"
  std::string pci;         // address of a GPU or a port
  std::uint64_t memory_bytes = 0;
  bool operator==(const Node&) const = default;
};

struct CrossLink {
  std::string kind;  // "NVLink", "NVSwitch", "UPI", "WAN", ...
  std::vector<std::int32_t>
      nodes;  // children of one node; two: a cable; more: a crossbar, with a port of that speed each
  Speed speed;
  bool operator==(const CrossLink&) const = default;
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<CrossLink> links;
  std::vector<std::int32_t> ranks;  // where each runs: a host, or something in one

  // kInvalidArgument says which node or link breaks which of the rules above.
  [[nodiscard]] Status check() const;
  // The host in which a node is; -1: it is of the network.
  [[nodiscard]] std::int32_t host_of(std::int32_t node) const;
  // In order of nodes.
  [[nodiscard]] std::vector<std::int32_t> hosts() const;
  [[nodiscard]] std::vector<std::int32_t> children(std::int32_t node) const;
  // Names from below the root down to it, joined by "/".
  [[nodiscard]] std::string path(std::int32_t node) const;
  // The node of that path; -1: none.
  [[nodiscard]] std::int32_t find(const std::string& path) const;
  bool operator==(const Graph&) const = default;
};

}  // namespace tutti::internal::topology
