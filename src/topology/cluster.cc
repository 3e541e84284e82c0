#include "topology/cluster.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
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

// Adds a copy of the host's nodes and links to that network.
void append(Graph& graph, const Graph& host, std::int32_t network) {
  const auto offset = static_cast<std::int32_t>(graph.nodes.size());
  for (Node node : host.nodes) {
    node.parent = node.parent < 0 ? network : node.parent + offset;
    if (node.kind == NodeKind::kPort) node.leads_to = network;
    graph.nodes.push_back(std::move(node));
  }
  for (CrossLink link : host.links) {
    for (std::int32_t& node : link.nodes) node += offset;
    graph.links.push_back(std::move(link));
  }
}

// Adds a host with its ranks; ports without a speed get the cluster's.
void add_host(Graph& graph, const Graph& host, const Cluster& cluster, int number, std::int32_t network) {
  const std::size_t offset = graph.nodes.size();
  append(graph, host, network);
  graph.nodes[offset].name = fmt::format("host{}", number);
  for (std::size_t n = offset; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    if (node.kind == NodeKind::kPort && node.out == Speed{}) node.out = cluster.port;
  }
  for (const std::int32_t node : host.ranks) graph.ranks.push_back(node + static_cast<std::int32_t>(offset));
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
  const bool joined = c.fabric == Fabric::kDragonfly || c.fabric == Fabric::kSites;
  if (joined && c.parts > 1000) return refuse("the number of groups or sites", 1000);
  return {};
}

// The sum over all ports of a host.
double gbytes_of_host(const Graph& host, const Cluster& c) {
  double all = 0;
  for (const Node& node : host.nodes) {
    if (node.kind == NodeKind::kPort)
      all += node.out == Speed{} ? c.port.gbytes_per_second : node.out.gbytes_per_second;
  }
  return all;
}

// The uplink of a part of the network with `hosts` hosts.
Speed way_out(const Cluster& c, const Graph& host, int hosts, int ways) {
  return {gbytes_of_host(host, c) * hosts / c.oversubscription / ways, c.port.latency_us};
}

// Adds nodes of one kind below a parent, one for each value of `number` over the ranks; if `linked`, joined with each
// other. Adds none if the value of a rank is unknown, or if all are equal.
template <class Number>
std::map<int, std::int32_t> divide(Graph& graph, NodeKind kind, std::int32_t parent, const std::vector<int>& ranks,
                                   bool linked, Number number) {
  std::map<int, std::int32_t> nodes;
  for (const int rank : ranks) nodes[number(rank)] = -1;
  if (nodes.size() < 2 || nodes.begin()->first < 0) return {};
  for (auto& [n, node] : nodes) node = add(graph, kind, fmt::format("{}{}", name_of(kind), n), parent);
  for (auto a = nodes.begin(); linked && a != nodes.end(); ++a) {
    for (auto b = std::next(a); b != nodes.end(); ++b)
      graph.links.push_back({"NUMA", {a->second, b->second}, kBetweenNumaNodes});
  }
  return nodes;
}

// Adds the ranks of one host at their nodes.
void add_ranks(Graph& graph, std::int32_t host, const std::vector<int>& ranks, std::span<const Place> places) {
  for (const int rank : ranks) graph.ranks[static_cast<std::size_t>(rank)] = host;
  if (places.empty()) return;
  const auto package = [&](int rank) { return places[static_cast<std::size_t>(rank)].package; };
  const auto numa_node = [&](int rank) { return places[static_cast<std::size_t>(rank)].numa_node; };
  const auto put = [&](const std::map<int, std::int32_t>& nodes, const std::vector<int>& there, auto number) {
    for (const int rank : there) {
      if (!nodes.empty()) graph.ranks[static_cast<std::size_t>(rank)] = nodes.at(number(rank));
    }
  };
  const auto packages = divide(graph, NodeKind::kPackage, host, ranks, true, package);
  put(packages, ranks, package);
  const bool in_packages = std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return package(rank) >= 0; });
  if (packages.empty())
    return put(divide(graph, NodeKind::kNumaNode, host, ranks, !in_packages, numa_node), ranks, numa_node);
  for (const auto& one : packages) {
    std::vector<int> there;
    std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(there),
                 [&](int rank) { return package(rank) == one.first; });
    put(divide(graph, NodeKind::kNumaNode, one.second, there, false, numa_node), there, numa_node);
  }
}

}  // namespace

void place_ranks(Graph& host, int ranks) {
  std::vector<std::int32_t> places;
  for (const NodeKind kind : {NodeKind::kGpu, NodeKind::kNumaNode, NodeKind::kHost}) {
    for (std::size_t i = 0;
         i < host.nodes.size() && (places.empty() || kind == host.nodes[static_cast<std::size_t>(places.front())].kind);
         ++i) {
      if (host.nodes[i].kind == kind) places.push_back(static_cast<std::int32_t>(i));
    }
  }
  host.ranks.clear();
  for (int i = 0; i < ranks; ++i) {
    host.ranks.push_back(places[static_cast<std::size_t>(i) * places.size() / static_cast<std::size_t>(ranks)]);
  }
}

Graph make_host(const Cluster& c) {
  Graph host;
  add(host, NodeKind::kHost, "host", -1);
  std::vector<std::int32_t> numa;
  for (int i = 0; i < c.numa_nodes; ++i) {
    numa.push_back(add(host, NodeKind::kNumaNode, fmt::format("numa{}", i), 0));
    const int first = c.cores * i / c.numa_nodes;
    const int last = c.cores * (i + 1) / c.numa_nodes - 1;
    if (first == last) host.nodes.back().processors = fmt::format("{}", first);
    if (first < last) host.nodes.back().processors = fmt::format("{}-{}", first, last);
    for (int p = i; p < c.ports; p += c.numa_nodes) add(host, NodeKind::kPort, fmt::format("port{}", p), numa.back());
  }
  for (std::size_t i = 0; i < numa.size(); ++i) {
    for (std::size_t j = i + 1; j < numa.size(); ++j) host.links.push_back({"NUMA", {numa[i], numa[j]}, c.numa});
  }
  place_ranks(host, c.ranks_per_host);
  return host;
}

Graph join_hosts(const std::vector<Graph>& hosts) {
  Graph all;
  add(all, NodeKind::kNetwork, "network", -1);
  std::map<std::string, int> names;
  for (const Graph& host : hosts) {
    const auto at = all.nodes.size();
    append(all, host, 0);
    std::string& name = all.nodes[at].name;
    const int again = ++names[name];
    if (again > 1) name += fmt::format("-{}", again);
  }
  return all;
}

Graph graph_of(const algorithms::World& world, std::span<const Place> places, Speed port) {
  Graph graph;
  graph.ranks.resize(static_cast<std::size_t>(world.ranks));
  if (world.hosts.size() < 2) {
    std::vector<int> all(graph.ranks.size());
    std::iota(all.begin(), all.end(), 0);
    add_ranks(graph, add(graph, NodeKind::kHost, "host0", -1), all, places);
    return graph;
  }
  const std::int32_t network = add(graph, NodeKind::kNetwork, "network", -1);
  for (std::size_t h = 0; h < world.hosts.size(); ++h) {
    const std::int32_t host = add(graph, NodeKind::kHost, fmt::format("host{}", h), network);
    Node& one = graph.nodes[static_cast<std::size_t>(add(graph, NodeKind::kPort, "port0", host))];
    one.leads_to = network;
    one.out = port;
    add_ranks(graph, host, world.hosts[h], places);
  }
  return graph;
}

namespace {

// Spreads ranks over the NUMA nodes of the host that have processors, neighbours together.
void spread_over_nodes(Graph& host, int ranks) {
  const auto numa_nodes = [&](bool with_processors) {
    std::vector<std::int32_t> found;
    for (std::size_t n = 0; n < host.nodes.size(); ++n) {
      const Node& node = host.nodes[n];
      if (node.kind == NodeKind::kNumaNode && !(with_processors && node.processors.empty()))
        found.push_back(static_cast<std::int32_t>(n));
    }
    return found;
  };
  std::vector<std::int32_t> nodes = numa_nodes(true);
  if (nodes.empty()) nodes = numa_nodes(false);  // processors are unknown
  if (nodes.empty()) nodes = host.hosts();
  for (int i = 0; i < ranks; ++i) {
    host.ranks.push_back(nodes[static_cast<std::size_t>(i) * nodes.size() / static_cast<std::size_t>(ranks)]);
  }
}

}  // namespace

Status match_job(Graph& graph, const algorithms::World& job) {
  const auto ranks = static_cast<std::size_t>(job.ranks);
  if (graph.ranks.empty() && graph.hosts().size() == 1) spread_over_nodes(graph, job.ranks);
  if (graph.ranks.size() != ranks) {
    return Status::invalid_argument(
        fmt::format("it describes machines with {} ranks, and the job has {}", graph.ranks.size(), ranks));
  }
  for (std::int32_t& place : graph.ranks) {
    const Node& node = graph.nodes[static_cast<std::size_t>(place)];
    if (node.kind == NodeKind::kGpu) place = node.parent;
  }
  // The first rank on each host.
  std::map<std::int32_t, int> first_there;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto rank = static_cast<int>(r);
    const int first = first_there.try_emplace(graph.host_of(graph.ranks[r]), rank).first->second;
    const int in_job = job.hosts.empty() ? 0 : job.hosts[job.hosts.position_of(rank).host].front();
    if (first == in_job) continue;
    return Status::invalid_argument(
        in_job == rank ? fmt::format("it has rank {} on the host of rank {}, but in the job it is on another host "
                                     "(ranks that do not share memory count as separate hosts: see TUTTI_TRANSPORTS)",
                                     rank, first)
                       : fmt::format("it has rank {} on another host than rank {}, but in the job they are on one host",
                                     rank, in_job));
  }
  return {};
}

int least_ports(const Graph& graph) {
  std::map<std::int32_t, int> ports;  // by host
  for (const std::int32_t place : graph.ranks) ports[graph.host_of(place)] = 0;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].kind != NodeKind::kPort || graph.nodes[n].leads_to < 0) continue;
    const auto host = ports.find(graph.host_of(static_cast<std::int32_t>(n)));
    if (host != ports.end()) ++host->second;
  }
  int least = ports.begin()->second;
  for (const auto& [host, count] : ports) least = std::min(least, count);
  return std::max(1, least);
}

Graph part_of(const Graph& graph, const std::vector<int>& ranks) {
  Graph part = graph;
  part.ranks.clear();
  for (const int rank : ranks) part.ranks.push_back(graph.ranks[static_cast<std::size_t>(rank)]);
  return part;
}

Result<Graph> make_cluster(const Cluster& c) {
  if (Status s = check(c); !s.is_ok()) return s;
  return make_cluster(c, make_host(c));
}

Result<Graph> make_cluster(const Cluster& c, const Graph& host) {
  if (Status s = check(c); !s.is_ok()) return s;
  if (host.nodes.empty() || host.nodes.front().kind != NodeKind::kHost) {
    return Status::invalid_argument("the topology to repeat is not a single host");
  }
  if (static_cast<double>(host.ranks.size()) * c.hosts > kMostRanks ||
      static_cast<double>(host.nodes.size()) * c.hosts > 2.0 * kMostRanks) {
    return Status::invalid_argument("too many hosts of that kind");
  }
  Graph graph;
  add(graph, NodeKind::kNetwork, "network", -1);
  int next = 0;
  if (c.fabric == Fabric::kSwitch) {
    while (next < c.hosts) add_host(graph, host, c, next++, 0);
    return graph;
  }
  const int parts = c.fabric == Fabric::kFatTree ? (c.hosts + c.parts - 1) / c.parts : c.parts;
  const char* const name = c.fabric == Fabric::kFatTree ? "leaf" : c.fabric == Fabric::kDragonfly ? "group" : "site";
  std::vector<std::int32_t> networks;
  for (int i = 0; i < parts; ++i) {
    const int end = c.fabric == Fabric::kFatTree ? std::min(c.hosts, (i + 1) * c.parts)
                                                 : static_cast<int>(std::int64_t{c.hosts} * (i + 1) / parts);
    const Speed up = c.fabric == Fabric::kFatTree ? way_out(c, host, c.parts, 1) : Speed{};
    networks.push_back(add(graph, NodeKind::kNetwork, fmt::format("{}{}", name, i), 0, up));
    while (next < end) add_host(graph, host, c, next++, networks.back());
  }
  const auto n = networks.size();
  for (std::size_t i = 0; i < n && c.fabric == Fabric::kDragonfly; ++i) {
    const Speed each = way_out(c, host, (c.hosts + parts - 1) / parts, std::max(1, parts - 1));
    for (std::size_t j = i + 1; j < n; ++j) graph.links.push_back({"global", {networks[i], networks[j]}, each});
  }
  for (std::size_t i = 0; i < n && n > 1 && c.fabric == Fabric::kSites; ++i) {
    if (n == 2 && i == 1) break;
    graph.links.push_back({"WAN", {networks[i], networks[(i + 1) % n]}, c.between_sites});
  }
  return graph;
}

}  // namespace tutti::internal::topology
