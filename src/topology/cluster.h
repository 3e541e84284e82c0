// Graphs of described clusters: equal hosts, and common networks between them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "algorithms/catalog.h"
#include "base/status.h"
#include "topology/detect.h"
#include "topology/graph.h"

namespace tutti::internal::topology {

enum class Fabric : std::uint8_t {
  kSwitch,     // one switch of unlimited bandwidth for all ports
  kFatTree,    // leaf switches below such a switch (Leiserson: Fat-trees, IEEE Trans. Computers 34 (1985))
  kDragonfly,  // groups, each linked to every other group (Kim, Dally, Scott, Abts: Technology-driven, highly-scalable
               // dragonfly topology, ISCA 2008)
  kSites,      // distant sites, linked in a ring
};

// As one UPI or xGMI link has it.
inline constexpr Speed kBetweenNumaNodes{20, 0.1};

struct Cluster {
  int hosts = 1;
  int ranks_per_host = 1;
  int numa_nodes = 1;  // of a host; each two are joined by a link of speed `numa`
  Speed numa = kBetweenNumaNodes;
  int cores = 0;          // of a host, spread over its NUMA nodes; 0: unknown
  int ports = 1;          // of a host, spread over its NUMA nodes
  Speed port{12.5, 0.5};  // 100 Gb/s
  Fabric fabric = Fabric::kSwitch;
  int parts = 1;                    // hosts of a leaf; groups; sites. Hosts are spread over groups and sites evenly
  double oversubscription = 1;      // bandwidth of the hosts of a leaf or group, divided by that of its uplink
  Speed between_sites{1.25, 5000};  // of one direction of one stretch
};
inline constexpr int kMostHosts = 1 << 20;
inline constexpr int kMostRanks = 1 << 22;

// The nodes, links and ranks of one host of the cluster. REQUIRES: its numbers are positive.
Graph make_host(const Cluster& cluster);
// Places `ranks` ranks in a host: on GPUs, else on NUMA nodes, else in the host as a whole; consecutive ranks together.
void place_ranks(Graph& host, int ranks);

// Hosts on one network of unknown speed, in this order. If two have the same name, the second gets a number. Without
// ranks. REQUIRES: each is a host with its contents.
Graph join_hosts(const std::vector<Graph>& hosts);

// The hosts of a job, each with a port of that speed. A host has packages and NUMA nodes if they are known for all of
// its ranks and the ranks are in several of them. Packages are joined by links, and so are NUMA nodes outside packages.
// `places`: by rank; empty: unknown.
Graph graph_of(const algorithms::World& world, std::span<const Place> places, Speed port);

// Adapts the graph of a file to a job. Ranks on GPUs move to the GPU's parent, because the job's memory is in the host.
// For a single host without ranks, the job's ranks are spread over its NUMA nodes that have processors.
// kInvalidArgument if the number of ranks or their hosts differ.
Status match_job(Graph& graph, const algorithms::World& job);
// The smallest number of network ports of a host with ranks; at least 1.
int least_ports(const Graph& graph);
// The graph with only these ranks.
Graph part_of(const Graph& graph, const std::vector<int>& ranks);

// Ranks are in the order of hosts. kInvalidArgument names the invalid number.
Result<Graph> make_cluster(const Cluster& cluster);
// The same with copies of this host: its ports lead to the network, and ports of unknown speed get the cluster's. The
// cluster's description of the inside of a host is ignored.
Result<Graph> make_cluster(const Cluster& cluster, const Graph& host);

}  // namespace tutti::internal::topology
