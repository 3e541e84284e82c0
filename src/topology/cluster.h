// Graphs of clusters that need not exist: equal hosts, and the common networks between them.
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
  kSwitch,     // one that all ports lead to and that hinders nobody
  kFatTree,    // leaf switches below such a one (Leiserson: Fat-trees, IEEE Trans. Computers 34 (1985))
  kDragonfly,  // groups, each joined to each other one (Kim, Dally, Scott, Abts: Technology-driven, highly-scalable
               // dragonfly topology, ISCA 2008)
  kSites,      // places far from each other, joined in a ring
};

// As one UPI or xGMI link has it.
inline constexpr Speed kBetweenNumaNodes{20, 0.1};

struct Cluster {
  int hosts = 1;
  int ranks_per_host = 1;
  int numa_nodes = 1;  // of a host; more are joined by a link of `numa` speed each with each
  Speed numa = kBetweenNumaNodes;
  int cores = 0;          // of a host, spread over its NUMA nodes; 0: nothing is said of them
  int ports = 1;          // of a host, spread over its NUMA nodes
  Speed port{12.5, 0.5};  // 100 Gb/s
  Fabric fabric = Fabric::kSwitch;
  int parts = 1;                    // hosts of a leaf; groups; sites. Hosts are spread over groups and sites evenly
  double oversubscription = 1;      // how many times what the hosts of a leaf or group could send its way out carries
  Speed between_sites{1.25, 5000};  // of one direction of one stretch
};
inline constexpr int kMostHosts = 1 << 20;
inline constexpr int kMostRanks = 1 << 22;

// The nodes, links and ranks of one host, as the cluster says. REQUIRES: its numbers are positive.
Graph make_host(const Cluster& cluster);
// Places so many ranks in a host: on GPUs, else on NUMA nodes, else in the host as a whole; consecutive ones together.
void place_ranks(Graph& host, int ranks);

// Hosts on one network of unknown speed, in this order. Of two with one name the second gets a number. Ranks are left
// out. REQUIRES: each is a host with what is in it.
Graph join_hosts(const std::vector<Graph>& hosts);

// The hosts of a job with a port of that speed each; in a host, where it is known of all of its ranks and they are in
// several, packages and NUMA nodes. Packages are joined with each other by links, and so are NUMA nodes that are in
// none. `places`: by rank; empty: nothing is known.
Graph graph_of(const algorithms::World& world, std::span<const Place> places, Speed port);

// Makes the graph of a file that of a job: ranks that it has on GPUs are where these are, since the job's memory is the
// host's; of one host without ranks, they are spread over its NUMA nodes that have processors. kInvalidArgument where
// its ranks are others, or on other hosts.
Status match_job(Graph& graph, const algorithms::World& job);
// Network ports of the host that has fewest, of those with ranks; at least 1.
int least_ports(const Graph& graph);
// Of those ranks alone.
Graph part_of(const Graph& graph, const std::vector<int>& ranks);

// Ranks are in the order of hosts. kInvalidArgument says which number is not possible.
Result<Graph> make_cluster(const Cluster& cluster);
// The same of hosts like this one: its ports lead to the network, and those of unknown speed have the cluster's. Of the
// cluster, what it says of the inside of a host does not count.
Result<Graph> make_cluster(const Cluster& cluster, const Graph& host);

}  // namespace tutti::internal::topology
