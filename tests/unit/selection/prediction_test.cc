#include "selection/prediction.h"

#include <cmath>
#include <set>
#include <string>

#include "catch_compat.h"
#include "topology/cluster.h"
#include "topology/routes.h"

namespace tutti::internal::selection {
using namespace topology;
namespace {

MachineCosts some_costs() {
  MachineCosts costs;
  costs.within_host = {0.4, 0.3, 4e-5, 4e-5, 32768, 262144};
  costs.between_hosts = {5, 1, 1e-4, 1e-4, 32768, 262144};
  costs.between_devices = {2, 1, 0, 0, 262144, 1048576};
  costs.host = {4e-5, 3e-5};
  costs.device = {1e-6, 1e-6};
  return costs;
}

bool says(const std::string& text, const char* what) {
  return text.find(what) != std::string::npos;
}

Cluster of(int hosts, int per_host) {
  Cluster cluster;
  cluster.hosts = hosts;
  cluster.ranks_per_host = per_host;
  return cluster;
}

std::set<std::string> ways(const Graph& graph, int from, int to, double memory_us_per_byte = 0) {
  MachineCosts costs = some_costs();
  costs.memory_us_per_byte = memory_us_per_byte;
  const Routes routes(graph, costs, {});
  schedule::Route route;
  routes.find_route(from, to, 1, route);
  std::set<std::string> names;
  for (const std::uint32_t r : route.resources) names.insert(routes.describe(r));
  return names;
}

using Names = std::set<std::string>;

TEST_CASE("messages between hosts leave by a port and arrive at one, within a host they meet none") {
  const Graph graph = make_cluster(of(2, 2)).value();
  REQUIRE(graph.check().is_ok());
  CHECK(ways(graph, 0, 1).empty());
  CHECK(ways(graph, 0, 2) == Names{"host0/numa0/port0 out", "host1/numa0/port0 in"});
}

TEST_CASE("each rank uses the port that is nearest to it, and those of one NUMA node share them") {
  Cluster cluster = of(2, 4);
  cluster.numa_nodes = 2;
  cluster.ports = 2;
  const Graph graph = make_cluster(cluster).value();
  CHECK(ways(graph, 0, 7) == Names{"host0/numa0/port0 out", "host1/numa1/port1 in"});
  CHECK(ways(graph, 0, 2) == Names{"NUMA host0/numa0 to host0/numa1"});
  CHECK(ways(graph, 0, 1).empty());
  cluster.ports = 1;
  const Graph one = make_cluster(cluster).value();
  CHECK(ways(one, 2, 4) == Names{"NUMA host0/numa1 to host0/numa0", "host0/numa0/port0 out", "host1/numa0/port0 in"});
}

TEST_CASE("messages within a host share the memory where they are received: a NUMA node's, or the host's") {
  Cluster cluster = of(2, 4);
  cluster.numa_nodes = 2;
  const Graph graph = make_cluster(cluster).value();
  CHECK(ways(graph, 0, 1, 1e-5) == Names{"host0/numa0 memory"});
  CHECK(ways(graph, 0, 3, 1e-5) == Names{"NUMA host0/numa0 to host0/numa1", "host0/numa1 memory"});
  CHECK(ways(graph, 0, 4, 1e-5) == ways(graph, 0, 4));
  CHECK(ways(graph_of({3, {}}, {}, {}), 0, 2, 1e-5) == Names{"host0 memory"});
  // Together the nodes are as fast as a host without a description.
  MachineCosts costs = some_costs();
  costs.memory_us_per_byte = 1e-5;
  schedule::Route route;
  const Routes routes(graph, costs, {});
  routes.find_route(0, 1, 1, route);
  CHECK(routes.us_per_byte(route.resources.at(0)) == Approx(2e-5));
  const Graph flat = graph_of({3, {}}, {}, {});
  const Routes of_flat(flat, costs, {});
  of_flat.find_route(0, 1, 1, route);
  CHECK(of_flat.us_per_byte(route.resources.at(0)) == Approx(1e-5));
}

TEST_CASE("ranks that all copy at the same time take as long as their memory, one alone as long as its processor") {
  const auto us_of = [](const char* algorithm, int ranks, double memory_us_per_byte) {
    MachineCosts costs = some_costs();
    costs.memory_us_per_byte = memory_us_per_byte;
    Question question;
    question.entry = algorithms::find(Collective::kAllGather, algorithm);
    question.bytes = static_cast<std::size_t>(ranks) << 20;
    return predict(graph_of({ranks, {}}, {}, {}), costs, question).value().us_of_call;
  };
  const double bytes_received = 16 * 15 * 1048576.0;
  CHECK(us_of("ring", 16, 1e-5) > bytes_received * 1e-5);
  CHECK(us_of("ring", 16, 1e-5) > 1.2 * us_of("ring", 16, 0));
  CHECK(us_of("ring", 2, 1e-5) < 1.1 * us_of("ring", 2, 0));
}

TEST_CASE("leaves of a fat tree share their way up, groups have a link each with each, sites a ring") {
  Cluster cluster = of(4, 1);
  cluster.fabric = Fabric::kFatTree;
  cluster.parts = 2;
  cluster.oversubscription = 4;
  const Graph tree = make_cluster(cluster).value();
  CHECK(ways(tree, 0, 1) == Names{"leaf0/host0/numa0/port0 out", "leaf0/host1/numa0/port0 in"});
  CHECK(ways(tree, 0, 3) ==
        Names{"leaf0/host0/numa0/port0 out", "leaf0 up", "leaf1 down", "leaf1/host3/numa0/port0 in"});
  CHECK(tree.nodes[1].up.gbytes_per_second == 2 * 12.5 / 4);
  cluster.fabric = Fabric::kDragonfly;
  cluster.parts = 4;
  CHECK(ways(make_cluster(cluster).value(), 0, 3).count("global group0 to group3") == 1);
  cluster.fabric = Fabric::kSites;
  const Graph sites = make_cluster(cluster).value();
  CHECK(ways(sites, 0, 3).count("WAN site0 to site3") == 1);
  const Names around = ways(sites, 0, 2);
  CHECK(around.size() == 4);  // two ports, two stretches
  const Routes routes(sites, some_costs(), {});
  schedule::Route route;
  routes.find_route(0, 2, 1, route);
  CHECK(route.latency_us > 2 * 5000);
}

Question question_of(Collective collective, const std::string& algorithm, std::size_t bytes) {
  Question question;
  question.entry = algorithms::find(collective, algorithm);
  question.bytes = bytes;
  return question;
}

TEST_CASE("where all hosts do the same, one stands for all, and takes as long") {
  int by_one = 0;
  for (const int hosts : {2, 4, 8}) {
    Cluster cluster = of(hosts, 4);
    cluster.numa_nodes = 2;
    cluster.ports = 2;
    const Graph graph = make_cluster(cluster).value();
    REQUIRE(hosts_alike(graph));
    for (const auto& entry : algorithms::catalog()) {
      if (info_of(entry.collective).varies) continue;
      Question question = question_of(entry.collective, entry.name, 1 << 20);
      if (!entry.supports({hosts * 4, Routes(graph, some_costs(), {}).hosts()})) continue;
      INFO(name_of(entry.collective) << ' ' << entry.name << " on " << hosts << " hosts");
      auto folded = predict(graph, some_costs(), question);
      REQUIRE(folded.is_ok());
      question.slowed.ranks[0] = 1;  // as fast as before, except one rank that differs
      auto whole = predict(graph, some_costs(), question);
      REQUIRE(whole.is_ok());
      CHECK(!(*whole).one_host);
      if (!(*folded).one_host) continue;
      ++by_one;
      CHECK((*folded).steps * static_cast<std::size_t>(hosts) == (*whole).steps);
      CHECK(std::abs((*folded).timing.total_us / (*whole).timing.total_us - 1) < 0.05);
    }
  }
  CHECK(by_one >= 15);
}

TEST_CASE("slow ranks and links make it slower") {
  const Graph graph = make_cluster(of(4, 2)).value();
  Question question = question_of(Collective::kAllReduce, "hierarchical", 1 << 24);
  const double plain = predict(graph, some_costs(), question).value().timing.total_us;
  question.slowed.ranks[3] = 0.25;
  CHECK(predict(graph, some_costs(), question).value().timing.total_us > 1.2 * plain);
  question.slowed = {};
  question.slowed.nodes[graph.find("host2/numa0/port0")] = 0.1;
  CHECK(predict(graph, some_costs(), question).value().timing.total_us > 2 * plain);
}

TEST_CASE("a simulation that would take more memory than allowed is refused before") {
  const Graph graph = make_cluster(of(64, 8)).value();
  Question question = question_of(Collective::kAllToAll, "direct", 1 << 20);
  question.slowed.ranks[0] = 1;
  question.most_memory_bytes = 1 << 20;
  const auto refused = predict(graph, some_costs(), question);
  CHECK(refused.status().code() == Code::kInvalidArgument);
  CHECK(says(refused.status().message(), "GiB of memory"));
}

using algorithms::Hierarchy;
using algorithms::Hosts;
using algorithms::World;

TEST_CASE("the groups of a graph's ranks are its networks, hosts, packages and NUMA nodes") {
  Cluster cluster = of(4, 4);
  cluster.numa_nodes = 2;
  cluster.fabric = Fabric::kSites;
  cluster.parts = 2;
  const World world = world_of(make_cluster(cluster).value());
  const Hosts hosts = {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}};
  CHECK(world.hosts == hosts);
  REQUIRE(world.hierarchy.size() == 3);
  CHECK(world.hierarchy[0] == Hosts{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}});
  CHECK(world.hierarchy[1] == hosts);
  CHECK(world.hierarchy[2][1] == std::vector<int>{2, 3});
  CHECK(world.hierarchy.check(16).is_ok());
  // Of one host, and of one without contents.
  cluster = of(1, 4);
  cluster.numa_nodes = 2;
  const World host = world_of(make_cluster(cluster).value());
  CHECK(host.hosts.empty());
  CHECK(host.hierarchy == Hierarchy({{{0, 1}, {2, 3}}}));
  CHECK(world_of(make_cluster(of(1, 4)).value()).hierarchy.empty());
}

TEST_CASE("a job's graph has packages and NUMA nodes where all ranks of a host know theirs") {
  const World job{6, {{0, 1, 2, 3}, {4, 5}}};
  const std::vector<Place> places = {{0, 0}, {1, 2}, {0, 1}, {1, 3}, {0, -1}, {-1, -1}};
  const Graph graph = graph_of(job, places, {1.25, 3});
  REQUIRE(graph.check().is_ok());
  const World world = world_of(graph);
  CHECK(world.hosts == job.hosts);
  REQUIRE(world.hierarchy.size() == 3);
  CHECK(world.hierarchy[1] == Hosts{{0, 2}, {1, 3}, {4, 5}});
  CHECK(world.hierarchy[2] == Hosts{{0}, {1}, {2}, {3}, {4, 5}});
  CHECK(ways(graph, 0, 1) == Names{"NUMA host0/package0 to host0/package1"});
  CHECK(ways(graph, 0, 2).empty());
  CHECK(ways(graph, 3, 5) == Names{"host0/port0 out", "host1/port0 in"});
  CHECK(world_of(graph_of(job, {}, {})).hierarchy == Hierarchy({job.hosts}));
  // NUMA nodes outside of a package.
  const Graph nodes = graph_of(World{2, {}}, std::vector<Place>{{-1, 1}, {-1, 0}}, {});
  CHECK(ways(nodes, 0, 1) == Names{"NUMA numa1 to numa0"});
}

TEST_CASE("a graph from a file is that of a job whose ranks are on the same hosts") {
  const World job{4, {{0, 1}, {2, 3}}};
  Graph graph = make_cluster(of(2, 2)).value();
  CHECK(match_job(graph, job).is_ok());
  const auto refusal = [](Graph of_file, const World& of) { return match_job(of_file, of).message(); };
  CHECK(says(refusal(graph, World{3, {{0, 1}, {2}}}), "4 ranks, and the job has 3"));
  CHECK(says(refusal(graph, World{4, {{0, 2}, {1, 3}}}),
             "rank 1 on the host of rank 0, but in the job it is on another host"));
  CHECK(says(refusal(graph, World{4, {}}), "rank 2 on another host than rank 0, but in the job they are on one host"));
  CHECK(says(refusal(graph, World{4, {{0}, {1}, {2}, {3}}}), "rank 1"));
  // One host without ranks, and ranks on GPUs.
  Cluster cluster = of(1, 1);
  cluster.numa_nodes = 2;
  Graph host = make_host(cluster);
  host.ranks.clear();
  REQUIRE(match_job(host, World{4, {}}).is_ok());
  CHECK(host.path(host.ranks[0]) == "numa0");
  CHECK(host.path(host.ranks[3]) == "numa1");
  Node gpu;
  gpu.kind = NodeKind::kGpu;
  gpu.name = "gpu";
  gpu.parent = host.ranks[3];
  host.nodes.push_back(gpu);
  host.ranks[3] = static_cast<std::int32_t>(host.nodes.size()) - 1;
  REQUIRE(match_job(host, World{4, {}}).is_ok());
  CHECK(host.path(host.ranks[3]) == "numa1");
  CHECK(part_of(host, {3, 0}).ranks == std::vector<std::int32_t>{host.ranks[3], host.ranks[0]});
}

// With four ranks on two nodes, half of all bytes cross the link between these without a hierarchy, in each direction.
TEST_CASE("a slow link within hosts makes deeper hierarchies worth while") {
  Cluster cluster = of(4, 8);
  cluster.numa_nodes = 2;
  cluster.numa = {0.5, 0.1};
  cluster.port = {100, 1};
  const Graph graph = make_cluster(cluster).value();
  const auto us = [&](const char* name) {
    return predict(graph, some_costs(), question_of(Collective::kAllReduce, name, 8 << 20)).value().timing.total_us;
  };
  CHECK(us("hierarchical") < 0.8 * us("hierarchical:1"));
}

TEST_CASE("channels of a ring use all ports of a host") {
  Cluster cluster = of(4, 4);
  cluster.ports = 4;
  cluster.numa_nodes = 4;
  cluster.numa = {1000, 0};
  cluster.port = {0.5, 1};
  const Graph graph = make_cluster(cluster).value();
  const auto us = [&](const char* name) {
    return predict(graph, some_costs(), question_of(Collective::kAllReduce, name, 16 << 20)).value().timing.total_us;
  };
  CHECK(us("ring:2") < 0.6 * us("ring"));
  CHECK(us("ring:4") < 0.6 * us("ring:2"));
}

TEST_CASE("impossible clusters are refused") {
  Cluster cluster = of(0, 1);
  CHECK(make_cluster(cluster).status().code() == Code::kInvalidArgument);
  cluster = of(kMostHosts, kMostRanks);
  CHECK(says(make_cluster(cluster).status().message(), "the number of ranks of a host"));
  cluster = of(4, 1);
  cluster.fabric = Fabric::kSites;
  cluster.parts = 5;
  CHECK(make_cluster(cluster).status().code() == Code::kInvalidArgument);
}

}  // namespace
}  // namespace tutti::internal::selection
