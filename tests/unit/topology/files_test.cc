#include <string>
#include <utility>
#include <vector>

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
  // The same in tutti's own format.
  auto file = parse_json(to_json(g), "file", kTopologyFormat, kTopologyVersion);
  REQUIRE(file.is_ok());
  CHECK(graph_of(*file).value() == g);
}

TEST_CASE("links between GPUs are listed at both ends, and NVLinks to itself are ignored") {
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

std::string host(const std::string& processors) {
  return "<system version=\"1\">" + processors + "</system>";
}
std::string cpu(const std::string& attributes, const std::string& devices) {
  return "<cpu " + attributes + ">" + devices + "</cpu>";
}
std::string gpu(int number, const std::string& link = "link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"") {
  const std::string n = std::to_string(number);
  return "<pci busid=\"0000:0" + n + ":00.0\" class=\"0x030200\" " + link + "><gpu dev=\"" + n +
         "\" sm=\"90\" rank=\"" + n + "\"/></pci>";
}
double rate_to_parent(const std::string& text, const std::string& path) {
  const auto graph = parse_nccl_topology(text, "file.xml");
  REQUIRE(graph.is_ok());
  const std::int32_t node = graph.value().find(path);
  REQUIRE(node >= 0);
  return graph.value().nodes[static_cast<std::size_t>(node)].up.gbytes_per_second;
}

TEST_CASE("RCCL's files: version 2, xGMI links, 16 GPUs") {
  std::string devices;
  for (int i = 0; i < 16; ++i) {
    const auto address = [](int gpu) { return "0000:" + std::to_string(10 + gpu) + ":00.0"; };
    devices += "<pci busid=\"" + address(i) +
               R"(" class="0x120000" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev=")" + std::to_string(i) +
               R"(" sm="304" gcn="gfx942" arch="38911" rank=")" + std::to_string(15 - i) + "\">";
    for (int j = 0; j < 16; ++j) {
      if (j != i) devices += "<xgmi target=\"" + address(j) + R"(" count="2" tclass="0x120000"/>)";
    }
    devices += "</gpu></pci>\n";
  }
  const auto graph =
      parse_nccl_topology("<system version=\"2\">" + cpu("numaid=\"0\"", devices) + "</system>", "file.xml");
  REQUIRE(graph.is_ok());
  CHECK(graph.value().check().is_ok());
  CHECK(graph.value().links.size() == 16 * 15 / 2);
  for (const CrossLink& link : graph.value().links) {
    CHECK(link.kind == "xGMI");
    CHECK(link.speed.gbytes_per_second == Approx(2 * 64));
  }
  REQUIRE(graph.value().ranks.size() == 16);
  CHECK(graph.value().ranks.front() == graph.value().find("numa0/gpu15"));
  // Numbers of earlier generations, of which gfx90a was 910.
  for (const auto& [gcn, each] :
       {std::pair{"908", 46.0}, {"910", 50.0}, {"gfx90a:sramecc+:xnack-", 50.0}, {"gfx950", 76.8}}) {
    const std::string pair =
        R"(<pci busid="0000:1D:00.0" class="0x038000"><gpu dev="0" gcn=")" + std::string(gcn) +
        R"("><xgmi target="20:00.0" count="1"/></gpu></pci><pci busid="0000:20:00.0"><gpu dev="1"/></pci>)";
    const auto two = parse_nccl_topology("<system version=\"2\">" + cpu("", pair) + "</system>", "file.xml");
    REQUIRE(two.is_ok());
    REQUIRE(two.value().links.size() == 1);
    CHECK(two.value().links[0].speed.gbytes_per_second == Approx(each));
  }
}

TEST_CASE("NUMA nodes without a number get one that no other has") {
  const auto read = [](const std::vector<std::string>& ids) {
    std::string processors;
    for (std::size_t i = 0; i < ids.size(); ++i)
      processors += cpu("numaid=\"" + ids[i] + "\"", gpu(static_cast<int>(i)));
    const auto graph = parse_nccl_topology(host(processors), "file.xml");
    REQUIRE(graph.is_ok());
    std::string paths;
    for (const std::int32_t rank : graph.value().ranks) paths += graph.value().path(rank) + " ";
    return paths;
  };
  CHECK(read({"-1"}) == "numa0/gpu0 ");
  CHECK(read({"0xffff"}) == "numa0/gpu0 ");
  CHECK(read({"-1", "0"}) == "numa1/gpu0 numa0/gpu1 ");
  CHECK(read({"-1", "1"}) == "numa0/gpu0 numa1/gpu1 ");
  CHECK(read({"0", "65535", "4294967295", "0x2"}) == "numa0/gpu0 numa1/gpu1 numa3/gpu2 numa2/gpu3 ");
}

TEST_CASE("several hosts in one file") {
  const std::string first =
      cpu("host_hash=\"0x1\" numaid=\"0\"", gpu(0)) + cpu("host_hash=\"0x1\" numaid=\"1\"", gpu(1));
  const auto graph = parse_nccl_topology(
      host(first + cpu("host_hash=\"0xfedcba9876543210\" numaid=\"0\"",
                       gpu(2) + R"(<pci class="0x020700"><nic><net name="mlx5_0" speed="400000"/></nic></pci>)")),
      "file.xml");
  REQUIRE(graph.is_ok());
  const Graph& g = graph.value();
  CHECK(g.check().is_ok());
  REQUIRE(g.hosts().size() == 2);
  REQUIRE(g.ranks.size() == 3);
  CHECK(g.path(g.ranks[0]) == "host0/numa0/gpu0");
  CHECK(g.path(g.ranks[1]) == "host0/numa1/gpu1");
  CHECK(g.path(g.ranks[2]) == "host1/numa0/gpu2");
  CHECK(g.nodes[static_cast<std::size_t>(g.find("host1/numa0/mlx5_0"))].leads_to == 0);
  // The same addresses and ranks on each host, and NVLinks to switches.
  const std::string pair =
      R"(<pci busid="a"><gpu dev="0" sm="90" rank="0"><nvlink target="f" count="18" tclass="0x068000"/></gpu></pci>)"
      R"(<pci busid="b"><gpu dev="1" sm="90" rank="1"><nvlink target="f" count="18" tclass="0x068000"/></gpu></pci>)";
  const auto alike = parse_nccl_topology(host(cpu("host_hash=\"1\"", pair) + cpu("host_hash=\"2\"", pair)), "file.xml");
  REQUIRE(alike.is_ok());
  CHECK(alike.value().check().is_ok());
  CHECK(alike.value().links.size() == 2);
  REQUIRE(alike.value().ranks.size() == 4);
  CHECK(alike.value().path(alike.value().ranks[2]) == "host1/numa0/gpu0");
  CHECK(error_of(host(cpu("", gpu(1)) + cpu("numaid=\"1\"", gpu(1)))).find("gpu.rank: appears twice") !=
        std::string::npos);
}

TEST_CASE("missing values in a file get NCCL's defaults") {
  const double eight = 8 * 16 / 8.0 * 128 / 130;
  for (const std::string link :
       {"", "link_speed=\"Unknown speed\" link_width=\"255\"", "link_speed=\"Unknown\" link_width=\"0\"",
        "link_speed=\"\" link_width=\"\"", "link_speed=\"8 GT/s\" link_width=\"-1\""}) {
    CHECK(rate_to_parent(host(cpu("", gpu(0, link))), "numa0/gpu0") == Approx(eight));
  }
  CHECK(rate_to_parent(host(cpu("", gpu(0, "link_speed=\"5 GT/s\" link_width=\"0x4\""))), "numa0/gpu0") ==
        Approx(eight * 5 / 32));
  const auto port_rate = [](const std::string& speed) {
    const auto graph = parse_nccl_topology(host(cpu("", "<nic><net name=\"e\" " + speed + "/></nic>")), "file.xml");
    REQUIRE(graph.is_ok());
    return graph.value().nodes.back().out.gbytes_per_second;
  };
  CHECK(port_rate("speed=\"200000\"") == Approx(25));
  CHECK(port_rate("speed=\"400000000\"") == Approx(50'000));
  for (const char* const speed : {"", "speed=\"-1\"", "speed=\"0\"", "speed=\"4294967295\"", "speed=\"Unknown\""}) {
    CHECK(port_rate(speed) == Approx(1.25));
  }
  // A device without a class is replaced by its contents.
  CHECK(rate_to_parent(host(cpu("", R"(<pci busid="1"><pci busid="2"><gpu dev="0"/></pci><pci busid="3"/></pci>)")),
                       "numa0/pci0/gpu0") > 0);
  // Ports of one device.
  const auto ports = parse_nccl_topology(
      host(cpu("", R"(<pci class="0x020000"><nic><net name="m" port="1"/><net name="m" port="2"/></nic></pci>)")),
      "file.xml");
  REQUIRE(ports.is_ok());
  CHECK(ports.value().find("numa0/m") >= 0);
  CHECK(ports.value().find("numa0/m:2") >= 0);
}

TEST_CASE("an empty file is refused as such") {
  const std::string unknown = "<pci busid=\"0000:00:16.0\"/><pci busid=\"0000:00:17.0\"/>";
  CHECK(error_of(host(std::string("\n").append(cpu("numaid=\"0\" affinity=\"ff\"", unknown))))
            .find("file.xml:1: the file has no GPU and no network device; 2 PCI devices have no class") == 0);
  CHECK(error_of(host(cpu("numaid=\"0\"", ""))).find("the file has no GPU") != std::string::npos);
  CHECK(error_of(host(cpu("numaid=\"0\"", R"(<pci busid="1" class="0x010802"/>)"))).find("the file has no GPU") !=
        std::string::npos);
  // A host with processors only is valid.
  CHECK(parse_nccl_topology(host(cpu("affinity=\"ff\"", "")), "file.xml").is_ok());
}

TEST_CASE("files that are wrong are refused with line and attribute") {
  CHECK(error_of("").find("file.xml:1: ") == 0);
  CHECK(error_of("<graph/>").find("no element \"system\"") != std::string::npos);
  CHECK(error_of("<system version=\"3\"/>").find("file.xml:1: system.version: 3 is neither 1 (NCCL) nor 2 (RCCL)") ==
        0);
  CHECK(error_of("<topology version=\"2.0\"/>").find("hwloc's XML") != std::string::npos);
  CHECK(error_of("<system version=\"1\"/>").find("the file is empty") != std::string::npos);
  CHECK(error_of("<system version=\"1\">\n<cpu numaid=\"0\">\n<pci class=\"what\"/></cpu></system>")
            .find("file.xml:3: pci.class: \"what\" is not a number") == 0);
  CHECK(error_of("<system><cpu numaid=\"0\"/>\n<cpu numaid=\"0\"/></system>")
            .find("file.xml:2: cpu: \"numa0\" exists already") == 0);
  CHECK(error_of("<system><cpu>\n<nic><net name=\"\xe5\xe5\"/></nic></cpu></system>").find("is not UTF-8") !=
        std::string::npos);
  CHECK(error_of("<system><cpu affinity=\"xyz\"/></system>").find("not a hexadecimal mask") != std::string::npos);
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
