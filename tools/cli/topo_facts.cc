// The facts that tutti topo prints beside the graph: interfaces, RDMA ports and why each is or is not used, GPUs.
#include "topo_facts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "base/config.h"
#include "topology/cpu_quota.h"
#include "topology/detect.h"

namespace tutti::internal::tools {
namespace {

using nlohmann::json;
namespace verbs = transport::verbs;

Result<Rdma> read_rdma() {
  const Result<Settings> settings = settings_from_environment();
  if (!settings.is_ok()) return settings.status();
  const Result<verbs::Options> options = verbs::parse_options(settings.value().verbs);
  if (!options.is_ok()) return options.status();
  Rdma rdma;
  rdma.settings = settings.value().verbs;
  Result<std::vector<verbs::Finding>> found = verbs::find_ports(options.value(), topology::far_nodes());
  rdma.status = found.status();
  if (!found.is_ok()) return rdma;
  rdma.findings = std::move(*found);
  rdma.reasons = verbs::reasons(rdma.findings, options.value());
  rdma.choice = verbs::choose_among(rdma.findings, options.value()).status();
  return rdma;
}

std::string rate_text(double gbits) {
  if (gbits <= 0) return "rate unknown";
  char text[32];
  std::snprintf(text, sizeof text, "%g Gb/s", gbits);
  return text;
}

std::string node_text(int node) {
  return node < 0 ? "NUMA node unknown" : fmt::format("NUMA node {}", node);
}

std::string join(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) {
    if (!all.empty()) all += ", ";
    all += text;
  }
  return all;
}

std::string gid_text(const std::array<std::uint8_t, 16>& gid) {
  std::string text;
  for (std::size_t i = 0; i < gid.size(); i += 2) {
    char group[8];
    std::snprintf(group, sizeof group, "%s%02x%02x", i == 0 ? "" : ":", gid[i], gid[i + 1]);
    text += group;
  }
  return text;
}

// In processors; none: no control group limits their time.
std::optional<double> processor_limit() {
  std::optional<double> least;
  for (const topology::CpuQuota& quota : topology::cpu_quotas()) {
    const double processors = quota.millicpus / 1000.0;
    least = least ? std::min(*least, processors) : processors;
  }
  return least;
}

void print_machine(const Facts& facts, const topology::Machine& machine) {
  const topology::ProcessorSet allowed = topology::allowed_processors();
  std::printf("machine\n  %s, %s\n  processors: %zu, of which this process may use %zu (%s)\n", facts.host.c_str(),
              facts.kernel.c_str(), machine.processors.count(), allowed.count(), range_text(allowed).c_str());
  if (const auto limit = processor_limit()) std::printf("  control groups leave it the time of %.2f\n", *limit);
  for (const topology::NumaNode& node : machine.numa_nodes) {
    std::printf("  NUMA node %d: processors %s, %.1f GiB\n", node.number, range_text(node.processors).c_str(),
                static_cast<double>(node.memory_bytes) / (1 << 30));
  }
  std::printf("\nnetwork interfaces\n");
  for (const Interface& one : facts.interfaces) {
    std::printf("  %-12s %s, %s, MTU %d, %s%s%s\n", one.name.c_str(), one.state.c_str(), rate_text(one.gbits).c_str(),
                one.mtu_bytes, node_text(one.numa_node).c_str(), one.addresses.empty() ? "" : "; ",
                join(one.addresses).c_str());
  }
}

void print_port(const verbs::Finding& finding, const verbs::Reason& reason) {
  const verbs::Port& port = finding.port;
  std::printf("  %s:%d", port.device.c_str(), port.port);
  if (!finding.state.empty()) {
    std::printf("  %s, %s, %s, MTU %d of %d\n    %s%s", name_of(port.fabric), finding.state.c_str(),
                rate_text(port.gbits).c_str(), port.mtu_bytes, finding.max_mtu_bytes, node_text(port.numa_node).c_str(),
                port.numa_node < 0 ? ""
                : port.near        ? ", near this process"
                                   : ", far from this process");
    if (port.fabric == verbs::Fabric::kInfiniband) std::printf(", LID %d", port.lid);
  }
  if (!port.gid_type.empty()) {
    std::printf("\n    GID %d of %zu: %s, %s", port.gid_index, finding.gids.size(), gid_text(port.gid).c_str(),
                port.gid_type.c_str());
    if (!port.netdev.empty()) std::printf(", on %s", port.netdev.c_str());
    if (!port.address.empty()) std::printf(", address %s", port.address.c_str());
    if (!port.subnet.empty()) std::printf(", subnet %s", port.subnet.c_str());
  }
  std::printf("\n    ");
  if (reason.position >= 0) {
    std::printf("chosen, number %d: %s\n", reason.position + 1, reason.why.c_str());
  } else {
    std::printf("%s%s\n", finding.trouble.empty() ? "not chosen: " : "", reason.why.c_str());
  }
}

void print_rdma(const Rdma& rdma) {
  std::printf("\nRDMA ports%s%s\n", rdma.settings.empty() ? "" : ", with TUTTI_VERBS=", rdma.settings.c_str());
  if (!rdma.status.is_ok()) std::printf("  none: %s\n", rdma.status.message().c_str());
  for (std::size_t i = 0; i < rdma.findings.size(); ++i) print_port(rdma.findings[i], rdma.reasons[i]);
  if (rdma.status.is_ok() && !rdma.choice.is_ok()) std::printf("  none chosen: %s\n", rdma.choice.message().c_str());
}

// Of each GPU the RDMA devices that are nearest to it.
std::vector<std::string> near_adapters(const topology::Gpu& gpu, const Rdma& rdma) {
  std::vector<std::string> names;
  for (const verbs::Finding& finding : rdma.findings) {
    if (names.empty() || names.back() != finding.port.device) names.push_back(finding.port.device);
  }
  std::vector<std::string> places;
  places.reserve(names.size());
  for (const std::string& name : names) places.push_back("/sys/class/infiniband/" + name + "/device");
  std::vector<std::string> near;
  for (const std::size_t i : topology::nearest(gpu, places)) near.push_back(names[i]);
  return near;
}

void print_paths(const std::vector<topology::Gpu>& all) {
  std::printf("  %-8s", "");
  for (std::size_t i = 0; i < all.size(); ++i) std::printf("%8s", fmt::format("GPU {}", i).c_str());
  std::printf("\n");
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::printf("  %-8s", fmt::format("GPU {}", i).c_str());
    for (std::size_t peer = 0; peer < all.size(); ++peer) {
      const unsigned links = i == peer ? 0 : all[i].nvlinks_to(all, peer);
      const std::string text = links > 0 ? fmt::format("NV{}", links) : short_name(all[i].paths[peer]);
      std::printf("%8s", text.c_str());
    }
    std::printf("\n");
  }
  std::printf(
      "  NVn: n NVLinks; else over PCIe: PIX one switch, PXB several, PHB a host bridge, NODE host bridges of a NUMA\n"
      "  node, SYS between NUMA nodes\n");
}

void print_gpus(const topology::Gpus& gpus, const Rdma& rdma) {
  std::printf("\nGPUs\n");
  if (!gpus.trouble.empty() || gpus.all.empty()) {
    std::printf("  %s%s\n", gpus.all.empty() ? "none" : "not all",
                gpus.trouble.empty() ? "" : (": " + gpus.trouble).c_str());
  }
  for (std::size_t i = 0; i < gpus.all.size(); ++i) {
    const topology::Gpu& gpu = gpus.all[i];
    const std::vector<std::string> near = near_adapters(gpu, rdma);
    std::printf("  GPU %-3zu %s, compute capability %d.%d, %.1f GiB, %s, %s%s\n", i, gpu.name.c_str(), gpu.major,
                gpu.minor, static_cast<double>(gpu.memory_bytes) / (1 << 30), gpu.pci.c_str(),
                node_text(gpu.numa_node).c_str(), near.empty() ? "" : ("; nearest " + join(near)).c_str());
  }
  if (gpus.all.size() > 1) print_paths(gpus.all);
}

// Unknown numbers are null.
json known(bool is_known, const json& value) {
  return is_known ? value : json();
}

json machine_json(const Facts& facts, const topology::Machine& machine) {
  json nodes = json::array();
  const std::optional<double> limit = processor_limit();
  for (const topology::NumaNode& node : machine.numa_nodes) {
    nodes.push_back(
        {{"node", node.number}, {"processors", range_text(node.processors)}, {"memory_bytes", node.memory_bytes}});
  }
  return {{"host", facts.host},
          {"kernel", facts.kernel},
          {"processors", machine.processors.count()},
          {"allowed_processors", range_text(topology::allowed_processors())},
          {"processor_limit", known(limit.has_value(), limit.value_or(0))},
          {"numa_nodes", nodes}};
}

json interfaces_json(const Facts& facts) {
  json all = json::array();
  for (const Interface& one : facts.interfaces) {
    all.push_back({{"name", one.name},
                   {"state", one.state},
                   {"gbits_per_second", known(one.gbits > 0, one.gbits)},
                   {"mtu_bytes", one.mtu_bytes},
                   {"numa_node", known(one.numa_node >= 0, one.numa_node)},
                   {"addresses", one.addresses}});
  }
  return all;
}

json port_json(const verbs::Finding& finding, const verbs::Reason& reason) {
  const verbs::Port& port = finding.port;
  json gids = json::array();
  for (const verbs::Gid& gid : finding.gids) {
    gids.push_back({{"index", gid.index}, {"gid", gid_text(gid.bytes)}, {"type", gid.type}, {"interface", gid.netdev}});
  }
  return {{"device", port.device},
          {"port", port.port},
          {"usable", finding.trouble.empty()},
          {"chosen", known(reason.position >= 0, reason.position)},
          {"reason", reason.why},
          {"state", finding.state},
          {"fabric", name_of(port.fabric)},
          {"gbits_per_second", known(port.gbits > 0, port.gbits)},
          {"mtu_bytes", port.mtu_bytes},
          {"max_mtu_bytes", finding.max_mtu_bytes},
          {"numa_node", known(port.numa_node >= 0, port.numa_node)},
          {"near", port.near},
          {"gid_index", port.gid_index},
          {"gid", gid_text(port.gid)},
          {"gid_type", port.gid_type},
          {"interface", port.netdev},
          {"address", port.address},
          {"subnet", port.subnet},
          {"lid", port.lid},
          {"gids", gids}};
}

json rdma_json(const Rdma& rdma) {
  json ports = json::array();
  for (std::size_t i = 0; i < rdma.findings.size(); ++i) {
    ports.push_back(port_json(rdma.findings[i], rdma.reasons[i]));
  }
  const Status& failed = rdma.status.is_ok() ? rdma.choice : rdma.status;
  return {{"settings", rdma.settings}, {"error", known(!failed.is_ok(), failed.message())}, {"ports", ports}};
}

json gpus_json(const topology::Gpus& gpus, const Rdma& rdma) {
  json all = json::array();
  for (const topology::Gpu& gpu : gpus.all) {
    json links = json::array();
    json paths = json::array();
    for (std::size_t peer = 0; peer < gpus.all.size(); ++peer) {
      links.push_back(&gpus.all[peer] == &gpu ? 0 : gpu.nvlinks_to(gpus.all, peer));
      paths.push_back(known(gpu.paths[peer] != topology::PciPath::kUnknown, short_name(gpu.paths[peer])));
    }
    all.push_back({{"name", gpu.name},
                   {"uuid", gpu.uuid},
                   {"pci", gpu.pci},
                   {"compute_capability", fmt::format("{}.{}", gpu.major, gpu.minor)},
                   {"memory_bytes", gpu.memory_bytes},
                   {"numa_node", known(gpu.numa_node >= 0, gpu.numa_node)},
                   {"nvlinks", links},
                   {"paths", paths},
                   {"nearest_rdma_devices", near_adapters(gpu, rdma)}});
  }
  return {{"error", known(!gpus.trouble.empty(), gpus.trouble)}, {"gpus", all}};
}

}  // namespace

Result<TopoFacts> read_topo_facts() {
  auto rdma = read_rdma();
  if (!rdma.is_ok()) return rdma.status();
  return TopoFacts{read_facts({}), std::move(*rdma), topology::find_gpus()};
}

topology::HostFacts host_facts(const TopoFacts& facts) {
  topology::HostFacts host;
  host.name = facts.machine.host;
  host.gpus = facts.gpus;
  for (const verbs::Finding& finding : facts.rdma.findings) {
    host.ports.push_back(
        {finding.port.device, name_of(finding.port.fabric), finding.port.gbits, finding.port.numa_node, true});
  }
  for (const Interface& one : facts.machine.interfaces) {
    const bool of_network = !one.addresses.empty() && one.name != "lo";
    host.ports.push_back({one.name, "Ethernet", std::max(0.0, one.gbits), one.numa_node, of_network});
  }
  return host;
}

void print_facts(const TopoFacts& facts) {
  print_machine(facts.machine, topology::this_machine());
  print_rdma(facts.rdma);
  print_gpus(facts.gpus, facts.rdma);
}

nlohmann::json facts_json(const TopoFacts& facts) {
  return {{"machine", machine_json(facts.machine, topology::this_machine())},
          {"interfaces", interfaces_json(facts.machine)},
          {"rdma", rdma_json(facts.rdma)},
          {"gpus", gpus_json(facts.gpus, facts.rdma)}};
}

}  // namespace tutti::internal::tools
