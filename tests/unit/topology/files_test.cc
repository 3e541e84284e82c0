#include <string>

#include "catch_compat.h"
#include "topology/graph_json.h"
#include "topology/nccl_xml.h"

namespace tutti::internal::topology {
namespace {

std::string error_of(const std::string& text) {
  return parse_nccl_topology(text, "file.xml").status().message();
}

// Eight GPUs in pairs below PCI switches, with a port beside each; all joined by switches of NVLinks.
std::string eight_gpus() {
  std::string text = "<system version=\"1\">\n";
  for (int cpu = 0; cpu < 4; ++cpu) {
    const std::string n = std::to_string(cpu);
    text += "<cpu numaid=\"" + n + "\" affinity=\"0000ffff,00000000\" vendor=\"AuthenticAMD\">\n";
    text += "<pci busid=\"ffff:ff:0" + n + ".0\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">\n";
    for (int i = 0; i < 2; ++i) {
      const std::string bus = "000" + std::to_string(2 * cpu + i);
      text += "<pci busid=\"" + bus + ":00:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\">";
      text +=
          "<gpu dev=\"" + std::to_string(2 * cpu + i) + "\" sm=\"90\" rank=\"" + std::to_string(2 * cpu + i) + "\">";
      text += "<nvlink target=\"0000:c0:00.0\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>\n";
      text += "<pci busid=\"01" + bus.substr(2) + ":00:00.0\" class=\"0x020700\"><nic><net name=\"mlx5_" +
              std::to_string(2 * cpu + i) + "\" speed=\"400000\"/></nic></pci>\n";
    }
    text += "</pci></cpu>\n";
  }
  return text + "</system>\n";
}

TEST_CASE("a machine of eight GPUs as NCCL writes it") {
  const auto graph = parse_nccl_topology(eight_gpus(), "file.xml");
  REQUIRE(graph.is_ok());
  const Graph& g = graph.value();
  CHECK(g.check().is_ok());
  CHECK(g.ranks.size() == 8);
  const auto& numa = g.nodes[static_cast<std::size_t>(g.find("numa1"))];
  CHECK(numa.processors == "32-47");
  const auto& gpu = g.nodes[static_cast<std::size_t>(g.find("numa1/pci1/gpu3"))];
  CHECK(gpu.pci == "0003:00:00.0");
  CHECK(gpu.up.gbytes_per_second == Approx(16 * 16 / 8.0 * 128 / 130));
  const auto& port = g.nodes[static_cast<std::size_t>(g.find("numa3/pci3/mlx5_7"))];
  CHECK(port.out.gbytes_per_second == Approx(50));
  REQUIRE(g.links.size() == 1);
  CHECK(g.links[0].nodes.size() == 8);
  CHECK(g.links[0].speed.gbytes_per_second == Approx(18 * 25));
  // As tutti's own format it is the same.
  auto file = parse_json(to_json(g), "file", kTopologyFormat, kTopologyVersion);
  REQUIRE(file.is_ok());
  CHECK(graph_of(*file).value() == g);
}

TEST_CASE("cables between GPUs are told of at both ends, and NVLinks to oneself are none") {
  const auto graph = parse_nccl_topology(
      R"(<system version="1"><cpu numaid="0">
<pci busid="1" class="0x030200"><gpu dev="0" sm="80"><nvlink target="2" count="12" tclass="0x030200"/></gpu></pci>
<pci busid="2" class="0x030200"><gpu dev="1" sm="80"><nvlink target="1" count="12" tclass="0x030200"/></gpu></pci>
<pci busid="3" class="0x030200"><gpu dev="2" sm="80"><nvlink target="3" count="12" tclass="0x030200"/></gpu></pci>
<nic><net name="eth0" speed="100000"/></nic></cpu></system>)",
      "file.xml");
  REQUIRE(graph.is_ok());
  REQUIRE(graph.value().links.size() == 1);
  CHECK(graph.value().links[0].speed.gbytes_per_second == 300);
  CHECK(graph.value().find("numa0/eth0") >= 0);
}

TEST_CASE("files that are wrong are refused with line and attribute") {
  CHECK(error_of("").find("file.xml:1: ") == 0);
  CHECK(error_of("<graph/>").find("no element \"system\"") != std::string::npos);
  CHECK(error_of("<system version=\"2\"/>").find("file.xml:1: system.version: is not 1") == 0);
  CHECK(error_of("<system version=\"1\">\n<cpu numaid=\"0\">\n<pci class=\"what\"/></cpu></system>")
            .find("file.xml:3: pci.class: \"what\" is no number") == 0);
  CHECK(
      error_of("<system><cpu numaid=\"0\"/>\n<cpu numaid=\"0\"/></system>").find("file.xml:2: cpu: there is another") ==
      0);
  CHECK(error_of("<system><cpu>\n<nic><net name=\"\xe5\xe5\"/></nic></cpu></system>").find("is not UTF-8") !=
        std::string::npos);
  CHECK(error_of("<system><cpu affinity=\"xyz\"/></system>").find("no hexadecimal mask") != std::string::npos);
  CHECK(error_of("<system><cpu><pci class=\"0x030000\"><gpu rank=\"99999999\"/></pci></cpu></system>")
            .find("gpu.rank: \"99999999\" is not a number") != std::string::npos);
  CHECK(error_of("<system><cpu><pci class=\"0x030000\" link_speed=\"fast\"/></cpu></system>").find("not a rate") !=
        std::string::npos);
  CHECK(error_of(eight_gpus().substr(0, 700)) != "");
  std::string deep = "<system><cpu>";
  for (int i = 0; i < 100; ++i) deep += "<pci busid=\"a\" class=\"0x060400\">";
  for (int i = 0; i < 100; ++i) deep += "</pci>";
  CHECK(error_of(deep + "</cpu></system>").find("nested more than") != std::string::npos);
  std::string many = "<system><cpu>";
  for (int i = 0; i < 5000; ++i) many += "<nic><net name=\"e" + std::to_string(i) + "\"/></nic>";
  CHECK(error_of(many + "</cpu></system>").find("more than 4096 elements") != std::string::npos);
}

}  // namespace
}  // namespace tutti::internal::topology
