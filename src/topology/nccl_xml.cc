#include "topology/nccl_xml.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <pugixml.hpp>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/json_file.h"
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
constexpr unsigned kNetwork = 0x02;

class Reader {
 public:
  Reader(const std::string& text, const std::string& name) : text_(text), name_(name) {}

  Result<Graph> run() {
    pugi::xml_document document;
    const pugi::xml_parse_result parsed = document.load_buffer(text_.data(), text_.size());
    if (!parsed) return failed(parsed.offset, parsed.description());
    const pugi::xml_node system = document.child("system");
    if (!system) return failed(0, "there is no element \"system\"");
    if (integer(system, "version", 0, 1'000'000, 1) != 1 && status_.is_ok()) {
      fail(system, "version", "is not 1");
    }
    Node host;
    host.kind = NodeKind::kHost;
    host.name = "host";
    graph_.nodes.push_back(std::move(host));
    if (text_.size() > kMostBytes) return failed(0, "it is longer than 16 MiB");
    if (status_.is_ok() && !system.child("cpu")) return failed(system.offset_debug(), "system has no element \"cpu\"");
    for (const pugi::xml_node cpu : system.children("cpu")) add_cpu(cpu);
    add_links();
    add_ranks();
    if (!status_.is_ok()) return status_;
    if (Status s = graph_.check(); !s.is_ok()) return s.with_context(name_);
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
    if (!found || *found.value() == '\0') return otherwise;
    const auto number = parse_integer(found.value(), least, most);
    if (!number) fail(element, name, fmt::format("\"{}\" is not a number from {} to {}", found.value(), least, most));
    return number.value_or(otherwise);
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
    for (const Node& other : graph_.nodes) {
      if (other.parent == parent && other.name == node.name) {
        status_ = status_.is_ok() ? failed(element.offset_debug(),
                                           fmt::format("{}: there is another \"{}\"", element.name(), node.name))
                                  : status_;
      }
    }
    graph_.nodes.push_back(std::move(node));
    return static_cast<std::int32_t>(graph_.nodes.size()) - 1;
  }

  void add_cpu(const pugi::xml_node& cpu) {
    const std::int64_t numa = integer(cpu, "numaid", -1, 1 << 20, -1);
    const std::int32_t node = add(NodeKind::kNumaNode, fmt::format("numa{}", std::max<std::int64_t>(numa, 0)), 0, cpu);
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
      if (*end != '\0') return fail(cpu, "affinity", "is no hexadecimal mask"), std::string();
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
    if (*text != '\0' && *end != '\0') return fail(pci, "class", fmt::format("\"{}\" is no number", text));
    const auto kind = static_cast<unsigned>(number >> 8);
    const Speed up{link_rate(pci), 0};
    if (kind == kBridge || pci.child("pci")) {
      const std::int32_t bridge = add(NodeKind::kPciSwitch, fmt::format("pci{}", bridges_++), parent, pci);
      graph_.nodes[static_cast<std::size_t>(bridge)].up = up;
      return add_devices(pci, bridge, depth + 1);
    }
    if (kind >> 8 == kDisplay || pci.child("gpu")) return add_gpu(pci, parent, up);
    if (kind >> 8 != kNetwork && !pci.child("nic")) return;
    if (pci.child("nic")) {
      for (const pugi::xml_node nic : pci.children("nic")) add_ports(nic, parent, up);
      return;
    }
    add_port(pci, fmt::format("nic{}", ports_), parent, up, 0);
  }

  double link_rate(const pugi::xml_node& pci) {
    const char* const text = pci.attribute("link_speed").value();  // "16 GT/s", "16.0 GT/s PCIe"
    const double transfers = std::strtod(text, nullptr);
    const auto lanes = static_cast<double>(integer(pci, "link_width", 0, 1024, 0));
    const bool known = transfers > 0 && transfers < 1e6;
    if (!known && *text != '\0' && std::string_view(text) != "Unknown")
      fail(pci, "link_speed", "is not a rate in GT/s");
    return known ? transfers * lanes * kGbytesPerTransfer : 0;
  }

  void add_gpu(const pugi::xml_node& pci, std::int32_t parent, const Speed& up) {
    const pugi::xml_node gpu = pci.child("gpu");
    const std::int64_t number = integer(gpu, "dev", 0, 1 << 20, gpus_);
    const std::int32_t node = add(NodeKind::kGpu, fmt::format("gpu{}", number), parent, pci);
    ++gpus_;
    const std::int64_t sm = integer(gpu, "sm", 0, 10'000, 0);
    graph_.nodes[static_cast<std::size_t>(node)].up = up;
    if (sm > 0) graph_.nodes[static_cast<std::size_t>(node)].about = fmt::format("sm {}", sm);
    by_pci_[pci.attribute("busid").value()] = node;
    const std::int64_t rank = integer(gpu, "rank", -1, 1 << 22, -1);
    if (rank >= 0 && !by_rank_.emplace(rank, node).second) fail(gpu, "rank", "is there twice");
    for (const pugi::xml_node link : gpu.children("nvlink")) {
      nvlinks_.push_back(
          {node, link.attribute("target").value(),
           std::strtoul(link.attribute("tclass").value(), nullptr, 16) >> 8 == kSwitchOfNvlinks,
           static_cast<double>(integer(link, "count", 0, 1024, 1)) * gbytes_of_nvlink(static_cast<int>(sm / 10))});
    }
  }

  void add_ports(const pugi::xml_node& nic, std::int32_t parent, const Speed& up) {
    for (const pugi::xml_node net : nic.children("net")) {
      if (!status_.is_ok()) return;
      const char* const name = net.attribute("name").value();
      const auto megabits = static_cast<double>(integer(net, "speed", 0, 100'000'000, 0));
      add_port(nic.parent(), *name != '\0' ? name : fmt::format("nic{}", ports_), parent, up, megabits);
    }
  }
  void add_port(const pugi::xml_node& pci, std::string name, std::int32_t parent, const Speed& up, double megabits) {
    std::replace(name.begin(), name.end(), '/', '_');
    Node& port = graph_.nodes[static_cast<std::size_t>(add(NodeKind::kPort, std::move(name), parent, pci))];
    port.up = up;
    port.out.gbytes_per_second = megabits * kGbytesPerMbit;
    ++ports_;
  }

  // Each cable is told of at both ends. Those that lead to switches make one crossbar.
  void add_links() {
    std::map<std::pair<std::int32_t, std::int32_t>, double> cables;
    std::map<std::int32_t, double> ports;
    for (const Nvlink& link : nvlinks_) {
      const auto target = by_pci_.find(link.target);
      if (link.to_switch) {
        ports[link.gpu] += link.gbytes_per_second;
      } else if (target != by_pci_.end() && target->second != link.gpu) {
        double& rate = cables[std::minmax(link.gpu, target->second)];
        rate = std::max(rate, link.gbytes_per_second);
      }
    }
    for (const auto& [ends, rate] : cables) graph_.links.push_back({"NVLink", {ends.first, ends.second}, {rate, 0}});
    if (ports.size() < 2) return;
    CrossLink crossbar{"NVSwitch", {}, {ports.begin()->second, 0}};
    for (const auto& [gpu, rate] : ports) {
      crossbar.nodes.push_back(gpu);
      crossbar.speed.gbytes_per_second = std::min(crossbar.speed.gbytes_per_second, rate);
    }
    graph_.links.push_back(std::move(crossbar));
  }

  // Those of a dump of several hosts' job are not numbered through: their order is kept.
  void add_ranks() {
    for (const auto& [rank, node] : by_rank_) graph_.ranks.push_back(node);
  }

  struct Nvlink {
    std::int32_t gpu;
    std::string target;
    bool to_switch;
    double gbytes_per_second;
  };

  const std::string& text_;
  const std::string& name_;
  Status status_;
  Graph graph_;
  std::map<std::string, std::int32_t> by_pci_;
  std::map<std::int64_t, std::int32_t> by_rank_;
  std::vector<Nvlink> nvlinks_;
  int bridges_ = 0;
  int gpus_ = 0;
  int ports_ = 0;
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
