#include "topology/host_graph.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "catch_compat.h"

namespace tutti::internal::topology {
namespace {

HostFacts facts() {
  HostFacts host;
  host.name = "here";
  host.ports.push_back({"made0", "Ethernet", 25, -1, true});
  host.ports.push_back({"hidden0", "Ethernet", 25, -1, false});
  return host;
}

int count(const Graph& graph, NodeKind kind) {
  int n = 0;
  for (const Node& node : graph.nodes) n += node.kind == kind ? 1 : 0;
  return n;
}

TEST_CASE("this machine has a NUMA node, processors, and the ports that were passed") {
  const auto graph = host_graph(facts());
  REQUIRE(graph.is_ok());
  CHECK(graph.value().check().is_ok());
  CHECK(graph.value().nodes.front().name == "here");
  CHECK(count(graph.value(), NodeKind::kNumaNode) >= 1);
  const std::int32_t made = graph.value().find("made0");
  REQUIRE(made > 0);
  CHECK(graph.value().nodes[static_cast<std::size_t>(made)].out.gbytes_per_second == 25 / 8.0);
  CHECK(graph.value().find("hidden0") < 0);
}

TEST_CASE("another machine's description replaces this machine's") {
  ::setenv("HWLOC_SYNTHETIC", "pack:2 numa:2(memory=1073741824) core:4 pu:2", 1);
  const auto graph = host_graph(facts());
  ::unsetenv("HWLOC_SYNTHETIC");
  REQUIRE(graph.is_ok());
  const Graph& g = graph.value();
  CHECK(count(g, NodeKind::kPackage) == 2);
  CHECK(count(g, NodeKind::kNumaNode) == 4);
  CHECK(count(g, NodeKind::kPort) == 0);
  CHECK(g.nodes.front().name == "host");
  const std::int32_t last = g.find("package1/numa3");
  REQUIRE(last > 0);
  CHECK(g.nodes[static_cast<std::size_t>(last)].processors == "24-31");
  CHECK(g.nodes[static_cast<std::size_t>(last)].memory_bytes == 1073741824);
}

}  // namespace
}  // namespace tutti::internal::topology
