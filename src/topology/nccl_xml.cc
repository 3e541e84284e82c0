#include "topology/nccl_xml.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <optional>
#include <pugixml.hpp>
#include <set>
#include <utility>
#include <vector>

#include "base/json_file.h"
#include "base/log.h"
#include "topology/host_graph.h"

namespace tutti::internal::topology {
namespace {

constexpr std::size_t kMostBytes = std::size_t{16} << 20;
constexpr int kMostDepth = 32;
constexpr std::size_t kMostNodes = 4096;
constexpr double kGbytesPerMbit = 1.0 / 8000;
// A PCI lane of 1 GT/s with the 128b/130b code of generation 3 and later.
constexpr double kGbytesPerTransfer = 128.0 / 130 / 8;
// PCI classes, without the programming interface.
constexpr unsigned kBridge = 0x0604;
constexpr unsigned kSwitchOfNvlinks = 0x0680;
constexpr unsigned kDisplay = 0x03;
constexpr unsigned kAccelerator = 0x12;  // of AMD's Instinct GPUs
constexpr unsigned kNetwork = 0x02;
// NCCL's values for missing or unknown attributes.
constexpr double kAssumedTransfers = 8;  // GT/s
constexpr std::int64_t kAssumedLanes = 16;
constexpr std::int64_t kMostLanes = 64;
constexpr std::int64_t kAssumedMegabits = 10'000;
// Virtual machines and partial dumps have NUMA nodes without a number: -1, 0xffff, 0xffffffff.
constexpr std::int64_t kUnknownNode = 0xffff;
constexpr std::int32_t kNone = -1;

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// "0000:1D:00.0" and "1d:00.0" are one address.
std::string address_of(const char* busid) {
  std::string digits;
  for (const char c : lower(busid)) {
    if (c != ':' && c != '.' && (c != '0' || !digits.empty())) digits += c;
  }
  return digits;
}

// An integer as NCCL reads it: 10, 0x0a or 012; 32 bits are used, so 0xffffffff is -1. Empty: not an integer.
std::optional<std::int64_t> number_of(std::string text) {
  text.erase(0, std::min(text.find_first_not_of(" \t"), text.size()));
  text.erase(text.find_last_not_of(" \t") + 1);
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 0);
  if (text.empty() || *end != '\0') return std::nullopt;
  return static_cast<std::int32_t>(value);
}

// "Unknown", "Unknown speed".
bool is_unknown(const std::string& text) {
  return lower(text).find("unknown") != std::string::npos;
}

// GB/s of an xGMI link in one direction. Source: data sheets of MI100, MI250X, MI300X and MI355X. `gcn`: "gfx942",
// "908"; old files call gfx90a 910.
double gbytes_of_xgmi(const std::string& gcn) {
  const std::string name = gcn.starts_with("gfx") ? gcn.substr(3) : gcn;
  if (name.starts_with("95")) return 76.8;
  if (name.starts_with("94")) return 64;
  return name.starts_with("90a") || name.starts_with("910") ? 50 : 46;
}

class Reader {
 public:
  Reader(const std::string& text, const std::string& name) : text_(text), name_(name) {}

  Result<Graph> run() {
    pugi::xml_document document;
    const pugi::xml_parse_result parsed = document.load_buffer(text_.data(), text_.size());
    if (!parsed) return failed(parsed.offset, parsed.description());
    const pugi::xml_node system = document.child("system");
    if (!system) {
      return failed(0, document.child("topology")
                           ? "this is hwloc's XML, not NCCL's. Run: HWLOC_XMLFILE=FILE tutti topo"
                           : "the file has no element \"system\"");
    }
    const std::int64_t version = integer(system, "version", INT32_MIN, INT32_MAX, 1);
    if (version != 1 && version != 2)
      fail(system, "version", fmt::format("{} is neither 1 (NCCL) nor 2 (RCCL)", version));
    if (text_.size() > kMostBytes) return failed(0, "it is longer than 16 MiB");
    if (status_.is_ok() && !system.child("cpu")) {
      return failed(system.offset_debug(), "the file is empty: system has no element \"cpu\"");
    }
    add_hosts(system);
    for (const pugi::xml_node cpu : system.children("cpu")) add_cpu(cpu);
    add_links();
    add_ranks();
    if (!status_.is_ok()) return status_;
    if (is_empty()) return nothing(system);
    if (Status s = graph_.check(); !s.is_ok()) return s.with_context(name_);
    if (assumed_ > 0) {
      log::warn(fmt::format("{}: PCI devices without a known link_speed: {}. As NCCL does, tutti assumes {} GT/s",
                            name_, assumed_, kAssumedTransfers));
    }
    return std::move(graph_);
  }

 private:
  Status failed(std::ptrdiff_t offset, const std::string& why) const {
    const auto end = text_.begin() + std::clamp<std::ptrdiff_t>(offset, 0, static_cast<std::ptrdiff_t>(text_.size()));
    return Status::invalid_argument(fmt::format("{}:{}: {}", name_, 1 + std::count(text_.begin(), end, '\n'), why));
  }
  void fail(const pugi::xml_node& element, const char* attribute, const std::string& why) {
    if (status_.is_ok()) {
      status_ = failed(element.offset_debug(), fmt::format("{}.{}: {}", element.name(), attribute, why));
    }
  }
  std::int64_t integer(const pugi::xml_node& element, const char* name, std::int64_t least, std::int64_t most,
                       std::int64_t otherwise) {
    const pugi::xml_attribute found = element.attribute(name);
    if (!found || *found.value() == '\0' || is_unknown(found.value())) return otherwise;
    const auto number = number_of(found.value());
    if (number && *number >= least && *number <= most) return *number;
    fail(element, name, fmt::format("\"{}\" is not a number from {} to {}", found.value(), least, most));
    return otherwise;
  }

  std::int32_t add(NodeKind kind, std::string name, std::int32_t parent, const pugi::xml_node& element) {
    Node node;
    node.kind = kind;
    node.name = std::move(name);
    node.parent = parent;
    node.pci = element.attribute("busid").value();
    if (graph_.nodes.size() == kMostNodes && status_.is_ok()) {
      status_ = failed(element.offset_debug(), fmt::format("there are more than {} elements", kMostNodes));
    }
    if (status_.is_ok() && !is_utf8(node.name)) {
      status_ = failed(element.offset_debug(), fmt::format("{}: its name is not UTF-8", element.name()));
    }
    if (!status_.is_ok()) return 0;
    if (is_taken(node.name, parent)) {
      status_ = failed(element.offset_debug(), fmt::format("{}: \"{}\" exists already", element.name(), node.name));
      return 0;
    }
    graph_.nodes.push_back(std::move(node));
    return static_cast<std::int32_t>(graph_.nodes.size()) - 1;
  }

  [[nodiscard]] bool is_taken(const std::string& name, std::int32_t parent) const {
    return std::any_of(graph_.nodes.begin(), graph_.nodes.end(),
                       [&](const Node& other) { return other.parent == parent && other.name == name; });
  }

  // The host of a processor: NCCL reads the hash as a hexadecimal number, 0 if it is missing.
  static std::uint64_t hash_of(const pugi::xml_node& cpu) {
    return std::strtoull(cpu.attribute("host_hash").value(), nullptr, 16);
  }

  // In the order of the file. One host is the whole graph; several are in a network.
  void add_hosts(const pugi::xml_node& system) {
    for (const pugi::xml_node cpu : system.children("cpu")) {
      Host& host = hosts_[hash_of(cpu)];
      if (host.number == kNone) host.number = static_cast<std::int32_t>(hosts_.size()) - 1;
      if (const std::int64_t numa = numa_of(cpu); numa != kNone) host.numa_nodes.insert(numa);
    }
    std::vector<Host*> in_order(hosts_.size());
    for (auto& [hash, host] : hosts_) in_order[static_cast<std::size_t>(host.number)] = &host;
    if (hosts_.size() > 1) network_ = add(NodeKind::kNetwork, "network", kNone, system);
    for (Host* host : in_order) {
      host->node =
          add(NodeKind::kHost, network_ == kNone ? "host" : fmt::format("host{}", host->number), network_, system);
    }
  }

  // kNone: unknown.
  std::int64_t numa_of(const pugi::xml_node& cpu) {
    const std::int64_t numa = integer(cpu, "numaid", INT32_MIN, INT32_MAX, kNone);
    return numa < 0 || numa == kUnknownNode ? kNone : numa;
  }

  void add_cpu(const pugi::xml_node& cpu) {
    host_ = &hosts_[hash_of(cpu)];
    std::int64_t numa = numa_of(cpu);
    if (numa == kNone) {
      for (numa = 0; host_->numa_nodes.count(numa) > 0;) ++numa;
      host_->numa_nodes.insert(numa);
    }
    const std::int32_t node = add(NodeKind::kNumaNode, fmt::format("numa{}", numa), host_->node, cpu);
    if (!status_.is_ok()) return;
    Node& added = graph_.nodes[static_cast<std::size_t>(node)];
    added.about = cpu.attribute("vendor").value();
    added.processors = processors_of(cpu);
    add_devices(cpu, node, 0);
  }

  // A mask in words of 32 bits, the highest first, as "0-23".
  std::string processors_of(const pugi::xml_node& cpu) {
    std::string digits = cpu.attribute("affinity").value();
    if (digits.size() > 4096) return fail(cpu, "affinity", "is longer than 4096 digits"), std::string();
    std::erase(digits, ',');
    std::vector<bool> bits;
    for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
      const char text[2] = {*digit, '\0'};
      char* end = nullptr;
      const unsigned long value = std::strtoul(text, &end, 16);
      if (*end != '\0') return fail(cpu, "affinity", "is not a hexadecimal mask"), std::string();
      for (int b = 0; b < 4; ++b) bits.push_back((value >> b & 1) != 0);
    }
    std::string ranges;
    for (std::size_t i = 0; i < bits.size(); ++i) {
      if (!bits[i]) continue;
      const std::size_t first = i;
      while (i + 1 < bits.size() && bits[i + 1]) ++i;
      ranges += fmt::format("{}{}", ranges.empty() ? "" : ",", first);
      if (i > first) ranges += fmt::format("-{}", i);
    }
    return ranges;
  }

  void add_devices(const pugi::xml_node& above, std::int32_t parent, int depth) {
    if (depth > kMostDepth) return fail(above, "pci", fmt::format("is nested more than {} deep", kMostDepth));
    for (const pugi::xml_node pci : above.children("pci")) {
      if (!status_.is_ok()) return;
      add_device(pci, parent, depth);
    }
    for (const pugi::xml_node nic : above.children("nic")) add_ports(nic, parent, {});
  }

  void add_device(const pugi::xml_node& pci, std::int32_t parent, int depth) {
    const char* const text = pci.attribute("class").value();
    char* end = nullptr;
    const unsigned long number = std::strtoul(text, &end, 16);
    if (*text != '\0' && *end != '\0') return fail(pci, "class", fmt::format("\"{}\" is not a number", text));
    const auto kind = static_cast<unsigned>(number >> 8);
    ++devices_;
    const Speed up{link_rate(pci), 0};
    if (kind == kBridge || pci.child("pci")) {
      const std::int32_t bridge = add(NodeKind::kPciSwitch, fmt::format("pci{}", bridges_++), parent, pci);
      graph_.nodes[static_cast<std::size_t>(bridge)].up = up;
      return add_devices(pci, bridge, depth + 1);
    }
    if (kind >> 8 == kDisplay || kind >> 8 == kAccelerator || pci.child("gpu")) return add_gpu(pci, parent, up);
    if (*text == '\0' && !pci.child("nic")) ++unclassified_;
    if (kind >> 8 != kNetwork && !pci.child("nic")) return;
    if (pci.child("nic")) {
      for (const pugi::xml_node nic : pci.children("nic")) add_ports(nic, parent, up);
      return;
    }
    add_port(pci, fmt::format("nic{}", ports_), parent, up, 0);
  }

  double link_rate(const pugi::xml_node& pci) {
    const char* const text = pci.attribute("link_speed").value();  // "16 GT/s", "16.0 GT/s PCIe", "Unknown speed"
    const double transfers = std::strtod(text, nullptr);
    const std::int64_t width = integer(pci, "link_width", INT32_MIN, INT32_MAX, 0);
    const std::int64_t lanes = width > 0 && width <= kMostLanes ? width : kAssumedLanes;
    const bool known = transfers > 0 && transfers < 1e6;
    if (!known && *text != '\0' && !is_unknown(text)) {
      fail(pci, "link_speed", fmt::format("\"{}\" is not a rate in GT/s", text));
    }
    assumed_ += known ? 0 : 1;
    return (known ? transfers : kAssumedTransfers) * static_cast<double>(lanes) * kGbytesPerTransfer;
  }

  void add_gpu(const pugi::xml_node& pci, std::int32_t parent, const Speed& up) {
    const pugi::xml_node gpu = pci.child("gpu");
    const std::int64_t number = integer(gpu, "dev", 0, 1 << 20, gpus_);
    const std::int32_t node = add(NodeKind::kGpu, fmt::format("gpu{}", number), parent, pci);
    ++gpus_;
    if (!status_.is_ok()) return;
    const std::int64_t sm = integer(gpu, "sm", 0, 10'000, 0);
    const std::string gcn = gpu.attribute("gcn").value();
    Node& added = graph_.nodes[static_cast<std::size_t>(node)];
    added.up = up;
    if (!gcn.empty() && is_utf8(gcn)) {
      added.about = gcn;
    } else if (sm > 0) {
      added.about = fmt::format("sm {}", sm);
    }
    by_pci_[{host_->number, address_of(pci.attribute("busid").value())}] = node;
    const std::int64_t rank = integer(gpu, "rank", -1, 1 << 22, -1);
    if (rank >= 0) {
      by_rank_.push_back({rank, host_->number, node});
      if (!ranks_of_hosts_.insert({host_->number, rank}).second) fail(gpu, "rank", "appears twice");
    }
    for (const char* const kind : {"nvlink", "xgmi"}) {
      const double each = *kind == 'x' ? gbytes_of_xgmi(gcn) : gbytes_of_nvlink(static_cast<int>(sm / 10));
      for (const pugi::xml_node link : gpu.children(kind)) {
        cable_ends_.push_back({node, host_->number, *kind == 'x' ? "xGMI" : "NVLink",
                               address_of(link.attribute("target").value()),
                               std::strtoul(link.attribute("tclass").value(), nullptr, 16) >> 8 == kSwitchOfNvlinks,
                               static_cast<double>(integer(link, "count", 0, 1024, 1)) * each});
      }
    }
  }

  void add_ports(const pugi::xml_node& nic, std::int32_t parent, const Speed& up) {
    for (const pugi::xml_node net : nic.children("net")) {
      if (!status_.is_ok()) return;
      const std::string given = net.attribute("name").value();
      const std::int64_t speed = integer(net, "speed", INT32_MIN, INT32_MAX, 0);
      std::string name = given.empty() ? fmt::format("nic{}", ports_) : given;
      std::replace(name.begin(), name.end(), '/', '_');
      // Ports of one device have its name.
      if (is_taken(name, parent)) name += fmt::format(":{}", integer(net, "port", 0, INT32_MAX, ports_));
      add_port(nic.parent(), std::move(name), parent, up, static_cast<double>(speed > 0 ? speed : kAssumedMegabits));
    }
  }
  void add_port(const pugi::xml_node& pci, std::string name, std::int32_t parent, const Speed& up, double megabits) {
    const std::int32_t node = add(NodeKind::kPort, std::move(name), parent, pci);
    if (!status_.is_ok()) return;
    Node& port = graph_.nodes[static_cast<std::size_t>(node)];
    port.up = up;
    port.out.gbytes_per_second = megabits * kGbytesPerMbit;
    port.leads_to = network_;
    ++ports_;
  }

  // The file lists each cable at both ends. The cables of a host to switches make one crossbar, also if the switches
  // join several hosts.
  void add_links() {
    std::map<std::pair<std::int32_t, std::int32_t>, CrossLink> cables;
    std::map<std::int32_t, std::map<std::int32_t, double>> ports;  // by host
    for (const CableEnd& end : cable_ends_) {
      const auto target = by_pci_.find({end.host, end.target});
      if (end.to_switch) {
        ports[end.host][end.gpu] += end.gbytes_per_second;
      } else if (target != by_pci_.end() && target->second != end.gpu) {
        const auto [first, second] = std::minmax(end.gpu, target->second);
        CrossLink& cable = cables.try_emplace({first, second}, CrossLink{end.kind, {first, second}, {}}).first->second;
        cable.speed.gbytes_per_second = std::max(cable.speed.gbytes_per_second, end.gbytes_per_second);
      }
    }
    for (auto& [ends, cable] : cables) graph_.links.push_back(std::move(cable));
    for (const auto& [host, gpus] : ports) {
      if (gpus.size() < 2) continue;
      CrossLink crossbar{"NVSwitch", {}, {gpus.begin()->second, 0}};
      for (const auto& [gpu, rate] : gpus) {
        crossbar.nodes.push_back(gpu);
        crossbar.speed.gbytes_per_second = std::min(crossbar.speed.gbytes_per_second, rate);
      }
      graph_.links.push_back(std::move(crossbar));
    }
  }

  // In their order. If each host numbers its ranks from 0, those of the first host come first.
  void add_ranks() {
    std::sort(by_rank_.begin(), by_rank_.end(), [](const Placed& a, const Placed& b) { return a.rank < b.rank; });
    const bool repeats = std::adjacent_find(by_rank_.begin(), by_rank_.end(), [](const Placed& a, const Placed& b) {
                           return a.rank == b.rank;
                         }) != by_rank_.end();
    if (repeats) {
      std::stable_sort(by_rank_.begin(), by_rank_.end(),
                       [](const Placed& a, const Placed& b) { return a.host < b.host; });
    }
    for (const Placed& placed : by_rank_) graph_.ranks.push_back(placed.node);
  }

  // A file with only processors is not empty, unless it also has unknown devices.
  [[nodiscard]] bool is_empty() const {
    const bool has_processors = std::any_of(graph_.nodes.begin(), graph_.nodes.end(),
                                            [](const Node& node) { return !node.processors.empty(); });
    return gpus_ == 0 && ports_ == 0 && (devices_ > 0 || !has_processors);
  }
  [[nodiscard]] Status nothing(const pugi::xml_node& system) const {
    const std::string unknown = unclassified_ == 0
                                    ? ""
                                    : fmt::format(
                                          "; {} PCI devices have no class, which NCCL reads from the machine. Run NCCL "
                                          "there with NCCL_TOPO_DUMP_FILE, and use the file that it writes",
                                          unclassified_);
    return failed(system.offset_debug(), fmt::format("the file has no GPU and no network device{}", unknown));
  }

  struct Host {
    std::int32_t number = kNone;  // in the file's order
    std::int32_t node = 0;
    std::set<std::int64_t> numa_nodes;  // numbers that are in use
  };
  struct CableEnd {
    std::int32_t gpu;
    std::int32_t host;
    const char* kind;
    std::string target;
    bool to_switch;
    double gbytes_per_second;
  };
  struct Placed {
    std::int64_t rank;
    std::int32_t host;
    std::int32_t node;
  };

  const std::string& text_;
  const std::string& name_;
  Status status_;
  Graph graph_;
  std::map<std::uint64_t, Host> hosts_;                                  // by hash
  Host* host_ = nullptr;                                                 // whose processor is being read
  std::int32_t network_ = kNone;                                         // of several hosts
  std::map<std::pair<std::int32_t, std::string>, std::int32_t> by_pci_;  // by host and address
  std::vector<Placed> by_rank_;
  std::set<std::pair<std::int32_t, std::int64_t>> ranks_of_hosts_;
  std::vector<CableEnd> cable_ends_;
  int bridges_ = 0;
  int gpus_ = 0;
  int ports_ = 0;
  int devices_ = 0;       // PCI elements
  int unclassified_ = 0;  // of these, devices without a class and without contents
  int assumed_ = 0;       // whose speed is assumed
};

}  // namespace

Result<Graph> parse_nccl_topology(const std::string& text, const std::string& name) {
  return Reader(text, name).run();
}

Result<Graph> read_nccl_topology(const std::string& path) {
  auto text = read_text_file(path, kMostBytes);
  if (!text.is_ok()) return text.status();
  return parse_nccl_topology(*text, path);
}

}  // namespace tutti::internal::topology
