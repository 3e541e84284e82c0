#include "topology/cluster.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace tutti::internal::topology {
namespace {

std::int32_t add(Graph& graph, NodeKind kind, std::string name, std::int32_t parent, Speed up = {}) {
  Node node;
  node.kind = kind;
  node.name = std::move(name);
  node.parent = parent;
  node.up = up;
  graph.nodes.push_back(std::move(node));
  return static_cast<std::int32_t>(graph.nodes.size()) - 1;
}

void add_host(Graph& graph, const Cluster& cluster, int number, std::int32_t network) {
  const std::int32_t host = add(graph, NodeKind::kHost, fmt::format("host{}", number), network);
  std::vector<std::int32_t> numa;
  for (int i = 0; i < cluster.numa_nodes; ++i) {
    numa.push_back(add(graph, NodeKind::kNumaNode, fmt::format("numa{}", i), host));
  }
  for (int i = 0; i < cluster.ports; ++i) {
    const auto at = static_cast<std::size_t>(i % cluster.numa_nodes);
    const std::int32_t port = add(graph, NodeKind::kPort, fmt::format("port{}", i), numa[at]);
    graph.nodes[static_cast<std::size_t>(port)].leads_to = network;
    graph.nodes[static_cast<std::size_t>(port)].out = cluster.port;
  }
  for (std::size_t i = 0; i < numa.size(); ++i) {
    for (std::size_t j = i + 1; j < numa.size(); ++j) graph.links.push_back({"NUMA", {numa[i], numa[j]}, cluster.numa});
  }
  // Consecutive ranks share a NUMA node.
  for (int i = 0; i < cluster.ranks_per_host; ++i) {
    const auto at = static_cast<std::size_t>(i) * numa.size() / static_cast<std::size_t>(cluster.ranks_per_host);
    graph.ranks.push_back(numa[at]);
  }
}

Status check(const Cluster& c) {
  const auto refuse = [](const char* what, double most) {
    return Status::invalid_argument(fmt::format("{} must be from 1 to {}", what, most));
  };
  if (c.hosts < 1 || c.hosts > kMostHosts) return refuse("the number of hosts", kMostHosts);
  if (c.ranks_per_host < 1 || c.ranks_per_host > kMostRanks / c.hosts) {
    return refuse("the number of ranks of a host", kMostRanks / c.hosts);
  }
  if (c.numa_nodes < 1 || c.numa_nodes > 64) return refuse("the number of NUMA nodes", 64);
  if (c.ports < 1 || c.ports > 64) return refuse("the number of ports", 64);
  if (c.parts < 1 || c.parts > c.hosts) return refuse("the number of hosts of a leaf, of groups or of sites", c.hosts);
  if (c.oversubscription < 1 || c.oversubscription > 1000) return refuse("the oversubscription", 1000);
  const int joined = c.fabric == Fabric::kDragonfly ? c.parts : 1;
  if (joined > 1000) return refuse("the number of groups", 1000);
  return {};
}

// What a part of the network with so many hosts has to the outside.
Speed way_out(const Cluster& c, int hosts, int ways) {
  return {c.port.gbytes_per_second * c.ports * hosts / c.oversubscription / ways, c.port.latency_us};
}

}  // namespace

Result<Graph> make_cluster(const Cluster& c) {
  if (Status s = check(c); !s.is_ok()) return s;
  Graph graph;
  add(graph, NodeKind::kNetwork, "network", -1);
  int next = 0;
  if (c.fabric == Fabric::kSwitch) {
    while (next < c.hosts) add_host(graph, c, next++, 0);
    return graph;
  }
  const int parts = c.fabric == Fabric::kFatTree ? (c.hosts + c.parts - 1) / c.parts : c.parts;
  const char* const name = c.fabric == Fabric::kFatTree ? "leaf" : c.fabric == Fabric::kDragonfly ? "group" : "site";
  std::vector<std::int32_t> networks;
  for (int i = 0; i < parts; ++i) {
    const int end = c.fabric == Fabric::kFatTree ? std::min(c.hosts, (i + 1) * c.parts)
                                                 : static_cast<int>(std::int64_t{c.hosts} * (i + 1) / parts);
    const Speed up = c.fabric == Fabric::kFatTree ? way_out(c, c.parts, 1) : Speed{};
    networks.push_back(add(graph, NodeKind::kNetwork, fmt::format("{}{}", name, i), 0, up));
    while (next < end) add_host(graph, c, next++, networks.back());
  }
  const auto n = networks.size();
  for (std::size_t i = 0; i < n && c.fabric == Fabric::kDragonfly; ++i) {
    const Speed each = way_out(c, (c.hosts + parts - 1) / parts, std::max(1, parts - 1));
    for (std::size_t j = i + 1; j < n; ++j) graph.links.push_back({"global", {networks[i], networks[j]}, each});
  }
  for (std::size_t i = 0; i < n && n > 1 && c.fabric == Fabric::kSites; ++i) {
    if (n == 2 && i == 1) break;
    graph.links.push_back({"WAN", {networks[i], networks[(i + 1) % n]}, c.between_sites});
  }
  return graph;
}

}  // namespace tutti::internal::topology
