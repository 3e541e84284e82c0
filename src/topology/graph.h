// The machines of a job as a graph: a tree of nodes, links between them, and speeds. Plain data, built by detection, by
// generators or from a file; tutti draws, writes and simulates it.
//
// Nodes form a tree: the network's switches above, below them hosts, in these packages, NUMA nodes, PCI switches, GPUs
// and network ports. An edge to the parent may have a rate and a latency. Beside the tree there are links between
// children of one node: cables between two (NVLink, UPI, WAN) and crossbars that join many (NVSwitch).
//
// The route of a message goes up from the sender's node to the lowest common ancestor and down again. If links join the
// children of that ancestor on the route, it uses the links. Between hosts it leaves through a network port of the
// sender's host and arrives at one of the receiver's host; outside, it is the route between the network nodes to which
// these ports lead.
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

// For one direction; both directions have the same speed and do not slow each other down. 0: unknown, treated as
// unlimited.
struct Speed {
  double gbytes_per_second = 0;  // 10^9 bytes
  double latency_us = 0;
  bool operator==(const Speed&) const = default;
};

struct Node {
  NodeKind kind = NodeKind::kHost;
  std::string name;          // unique among the children of its parent
  std::int32_t parent = -1;  // lower than its own number; -1: none
  Speed up;                  // to the parent
  // For a port: the network node to which it leads, and the speed.
  std::int32_t leads_to = -1;
  Speed out;
  // Further properties; empty or 0: unknown.
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
  std::vector<std::int32_t> ranks;  // the node of each rank: a host, or a node in a host

  // kInvalidArgument names the node or link, and the violated rule.
  [[nodiscard]] Status check() const;
  // The host of a node; -1: it is part of the network.
  [[nodiscard]] std::int32_t host_of(std::int32_t node) const;
  // In order of nodes.
  [[nodiscard]] std::vector<std::int32_t> hosts() const;
  [[nodiscard]] std::vector<std::int32_t> children(std::int32_t node) const;
  // Names from below the root down to it, joined by "/".
  [[nodiscard]] std::string path(std::int32_t node) const;
  // The node with that path; -1: none.
  [[nodiscard]] std::int32_t find(const std::string& path) const;
  bool operator==(const Graph&) const = default;
};

}  // namespace tutti::internal::topology
