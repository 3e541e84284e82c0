#include "topology/prediction.h"

#include <cmath>
#include <set>
#include <string>

#include "catch_compat.h"
#include "topology/cluster.h"
#include "topology/routes.h"

namespace tutti::internal::topology {
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

std::set<std::string> ways(const Graph& graph, int from, int to) {
  const Routes routes(graph, some_costs(), {});
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
      question.slowed.ranks[0] = 1;  // as fast as ever, but one that is not like the others
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

TEST_CASE("what would take more memory than allowed is refused before it does") {
  const Graph graph = make_cluster(of(64, 8)).value();
  Question question = question_of(Collective::kAllToAll, "direct", 1 << 20);
  question.slowed.ranks[0] = 1;
  question.most_memory_bytes = 1 << 20;
  const auto refused = predict(graph, some_costs(), question);
  CHECK(refused.status().code() == Code::kInvalidArgument);
  CHECK(says(refused.status().message(), "GiB of memory"));
}

TEST_CASE("clusters that cannot be are refused") {
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
}  // namespace tutti::internal::topology
