#include "topology/graph.h"

#include <string>
#include <vector>

#include "catch_compat.h"
#include "topology/cluster.h"
#include "topology/graph_json.h"

namespace tutti::internal::topology {
namespace {

std::string error_of(const std::string& text) {
  auto file = parse_json(text, "file", kTopologyFormat, kTopologyVersion);
  if (!file.is_ok()) return file.status().message();
  return graph_of(*file).status().message();
}

Graph read_back(const std::string& text) {
  auto file = parse_json(text, "file", kTopologyFormat, kTopologyVersion);
  REQUIRE(file.is_ok());
  auto graph = graph_of(*file);
  INFO(graph.status().message());
  REQUIRE(graph.is_ok());
  return *graph;
}

std::string with_root(const std::string& root) {
  return R"({"format": "tutti topology", "version": 1, "root": )" + root + "}";
}

TEST_CASE("a written graph is read back unchanged, and equal neighbours are written once") {
  for (const Fabric fabric : {Fabric::kSwitch, Fabric::kFatTree, Fabric::kDragonfly, Fabric::kSites}) {
    for (const int hosts : {1, 2, 3, 12}) {
      Cluster cluster;
      cluster.hosts = hosts;
      cluster.ranks_per_host = 3;
      cluster.numa_nodes = 2;
      cluster.ports = 3;
      cluster.fabric = fabric;
      cluster.parts = fabric == Fabric::kSwitch ? 1 : (hosts + 2) / 3;
      const Graph graph = make_cluster(cluster).value();
      CHECK(read_back(to_json(graph)) == graph);
    }
  }
  Cluster large;
  large.hosts = 5000;
  const std::string text = to_json(make_cluster(large).value());
  CHECK(text.find(R"("count": 5000)") != std::string::npos);
  CHECK(text.size() < 200'000);  // the ranks
}

TEST_CASE("a file by hand: counts, links below a node, a port that leads elsewhere, ranks") {
  const Graph graph = read_back(R"({"format": "tutti topology", "version": 1,
 "root": {"kind": "network", "name": "all", "nodes": [
   {"kind": "network", "name": "rail", "count": 2, "up": {"latency_us": 1}},
   {"kind": "host", "name": "node", "count": 2, "first": 7, "nodes": [
      {"kind": "gpu", "name": "gpu", "count": 3},
      {"kind": "port", "name": "a", "leads_to": "rail0", "out": {"gbytes_per_second": 50}},
      {"kind": "port", "name": "b"}],
    "links": [{"kind": "NVSwitch", "between": ["gpu0", "gpu1", "gpu2"], "gbytes_per_second": 450}]}]},
 "ranks": ["node7/gpu0", {"at": "node8/gpu2", "count": 2}]})");
  CHECK(graph.hosts().size() == 2);
  CHECK(graph.find("node8/gpu2") >= 0);
  CHECK(graph.find("node9/gpu2") < 0);
  CHECK(graph.find("all") == 0);
  const auto& a = graph.nodes[static_cast<std::size_t>(graph.find("node8/a"))];
  CHECK(a.leads_to == graph.find("rail0"));
  CHECK(graph.nodes[static_cast<std::size_t>(graph.find("node7/b"))].leads_to == 0);
  REQUIRE(graph.links.size() == 2);
  CHECK(graph.links[1].nodes[2] == graph.find("node8/gpu2"));
  CHECK(graph.ranks ==
        std::vector<std::int32_t>{graph.find("node7/gpu0"), graph.find("node8/gpu2"), graph.find("node8/gpu2")});
  CHECK(read_back(to_json(graph)) == graph);
}

TEST_CASE("wrong files are refused with line and field") {
  CHECK(error_of(with_root("3")) == "file:1: root: is not an object");
  CHECK(error_of(with_root(R"({"kind": "host"})")) == "file:1: root: has no \"name\"");
  CHECK(error_of(with_root(R"({"kind": "box", "name": "a"})")).find("file:1: root.kind: is not network, host") == 0);
  CHECK(error_of(with_root(R"({"kind": "host", "name": "a", "colour": 1})")) ==
        "file:1: root.colour: is an unknown field");
  CHECK(error_of(
            with_root("{\"kind\": \"network\", \"name\": \"a\", \"nodes\": [\n{\"kind\": \"host\", \"name\": \"b\"},\n"
                      "{\"kind\": \"host\", \"name\": \"b\"}]}"))
            .find("file:3: root.nodes[1]: \"b\" exists already") == 0);
  CHECK(error_of(with_root(R"({"kind": "network", "name": "a", "nodes": [{"kind": "gpu", "name": "g"}]})"))
            .find("a network or host must be in a network") != std::string::npos);
  CHECK(error_of(with_root(R"({"kind": "host", "name": "a", "up": {"latency_us": -1}})"))
            .find("root.up.latency_us: is not a number") != std::string::npos);
  CHECK(error_of(with_root(R"({"kind": "host", "name": "a", "up": {"latency_us": 1e999}})")).find("file:1: ") == 0);
  CHECK(error_of(with_root(R"({"kind": "host", "name": "a", "links": [{"kind": "x", "between": ["b"]}]})"))
            .find("root.links[0].between[0]: \"b\" does not exist here") != std::string::npos);
  // Counts multiply: 2^23 hosts of 2^23 parts each.
  CHECK(error_of(with_root(R"({"kind": "network", "name": "a", "nodes": [{"kind": "host", "name": "h", "count": 8388608,
    "nodes": [{"kind": "numa", "name": "n", "count": 8388608}]}]})"))
            .find("root: has more than 8388608 nodes") != std::string::npos);
  CHECK(error_of(R"({"format": "tutti topology", "version": 1, "root": {"kind": "host", "name": "a"},
    "ranks": [{"at": "a", "count": 8388608}, "a"]})")
            .find("ranks[1]: makes it more than") != std::string::npos);
  CHECK(error_of(
            R"({"format": "tutti topology", "version": 1, "root": {"kind": "network", "name": "a"}, "ranks": ["a"]})")
            .find("rank 0 is not in a host") != std::string::npos);
}

}  // namespace
}  // namespace tutti::internal::topology
