#include "topology/host_graph.h"

#include <fmt/core.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "topology/hwloc_topology.h"

namespace tutti::internal::topology {
namespace {

// PCI classes, without the programming interface.
constexpr unsigned kDisplay = 0x03;
constexpr unsigned kNetwork = 0x02;

Topology load_devices() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  // Without these components, which query drivers; NVML is queried below. The kernel's files also list PCI devices,
  // without the names of a database, whose memory the "pci" component would keep.
  for (const char* slow : {"cuda", "nvml", "opencl", "rsmi", "levelzero", "gl", "pci"}) {
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, slow);
  }
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING |
                                    HWLOC_TOPOLOGY_FLAG_NO_DISTANCES | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS);
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

std::string list_of(hwloc_const_bitmap_t bitmap) {
  char* text = nullptr;
  if (bitmap == nullptr || hwloc_bitmap_list_asprintf(&text, bitmap) < 0) return {};
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  return text;
}

std::string info_of(hwloc_obj_t object, const char* name) {
  const char* const text = hwloc_obj_get_info_by_name(object, name);
  return text == nullptr ? std::string() : std::string(text);
}

std::string address_of(hwloc_obj_t pci) {
  const auto& at = pci->attr->pcidev;
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", static_cast<unsigned>(at.domain), static_cast<unsigned>(at.bus),
                     static_cast<unsigned>(at.dev), static_cast<unsigned>(at.func));
}

// A node whose number is not assigned yet.
struct Draft {
  Node node;
  std::vector<std::unique_ptr<Draft>> below;

  Draft* add(NodeKind kind, std::string name) {
    below.push_back(std::make_unique<Draft>());
    below.back()->node.kind = kind;
    below.back()->node.name = std::move(name);
    return below.back().get();
  }
};

class Finder {
 public:
  Finder(const HostFacts& facts, hwloc_topology_t topology)
      : facts_(facts), topology_(topology), is_this_(hwloc_topology_is_thissystem(topology) != 0) {}

  Result<Graph> run() {
    host_.node.kind = NodeKind::kHost;
    const std::string told = info_of(hwloc_get_root_obj(topology_), "HostName");
    host_.node.name = is_this_ && !facts_.name.empty() ? facts_.name : told.empty() ? "host" : told;
    std::replace(host_.node.name.begin(), host_.node.name.end(), '/', '_');
    add_packages();
    add_numa_nodes();
    walk(hwloc_get_root_obj(topology_));
    if (is_this_) add_other_ports();
    number(host_, -1);
    if (is_this_) add_nvlinks();
    if (Status s = graph_.check(); !s.is_ok()) return Status::internal(s.message());
    return std::move(graph_);
  }

 private:
  // A single package is omitted: it is the same as the host.
  void add_packages() {
    const int count = hwloc_get_nbobjs_by_type(topology_, HWLOC_OBJ_PACKAGE);
    for (int i = 0; i < count; ++i) {
      hwloc_obj_t package = hwloc_get_obj_by_type(topology_, HWLOC_OBJ_PACKAGE, static_cast<unsigned>(i));
      const std::string model = info_of(package, "CPUModel");
      if (i == 0) host_.node.about = model;
      if (count < 2) return;
      Draft* draft = host_.add(NodeKind::kPackage, fmt::format("package{}", i));
      draft->node.about = model;
      draft->node.processors = list_of(package->cpuset);
      packages_.emplace_back(package, draft);
    }
  }

  void add_numa_nodes() {
    const int count = hwloc_get_nbobjs_by_type(topology_, HWLOC_OBJ_NUMANODE);
    std::map<unsigned, hwloc_obj_t> nodes;
    for (int i = 0; i < count; ++i) {
      hwloc_obj_t node = hwloc_get_obj_by_type(topology_, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
      nodes[node->os_index] = node;
    }
    for (const auto& [index, node] : nodes) {
      Draft* home = &host_;
      for (const auto& [package, draft] : packages_) {
        const bool has_some = hwloc_bitmap_iszero(node->cpuset) == 0;
        if (has_some && hwloc_bitmap_isincluded(node->cpuset, package->cpuset) != 0) home = draft;
      }
      Draft* draft = home->add(NodeKind::kNumaNode, fmt::format("numa{}", index));
      draft->node.processors = list_of(node->cpuset);
      draft->node.memory_bytes = node->attr->numanode.local_memory;
      numa_[index] = draft;
    }
  }

  // The NUMA node that is near to the devices below the object.
  Draft* home_of(hwloc_obj_t object) {
    const bool one = object->nodeset != nullptr && hwloc_bitmap_weight(object->nodeset) == 1;
    const auto found = numa_.find(one ? static_cast<unsigned>(hwloc_bitmap_first(object->nodeset)) : ~0U);
    return found == numa_.end() ? &host_ : found->second;
  }

  void walk(hwloc_obj_t object) {
    for (hwloc_obj_t io = object->io_first_child; io != nullptr; io = io->next_sibling) add_io(io, home_of(object));
    for (hwloc_obj_t child = object->first_child; child != nullptr; child = child->next_sibling) walk(child);
  }

  static bool is_wanted(hwloc_obj_t object) {
    if (object->type != HWLOC_OBJ_PCI_DEVICE) return false;
    const unsigned kind = object->attr->pcidev.class_id >> 8;
    return kind == kDisplay || kind == kNetwork;
  }
  static int wanted_below(hwloc_obj_t object) {
    int count = is_wanted(object) ? 1 : 0;
    for (hwloc_obj_t io = object->io_first_child; io != nullptr; io = io->next_sibling) count += wanted_below(io);
    return count;
  }

  void add_io(hwloc_obj_t object, Draft* home) {
    if (object->type == HWLOC_OBJ_BRIDGE && object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI &&
        wanted_below(object) > 1) {
      Draft* bridge = home->add(NodeKind::kPciSwitch, fmt::format("pci{}", bridges_++));
      bridge->node.pci = address_of(object);
      bridge->node.up.gbytes_per_second = static_cast<double>(object->attr->pcidev.linkspeed);
      home = bridge;
    }
    if (is_wanted(object)) {
      object->attr->pcidev.class_id >> 8 == kDisplay ? add_gpu(object, home) : add_port(object, home);
    }
    for (hwloc_obj_t io = object->io_first_child; io != nullptr; io = io->next_sibling) add_io(io, home);
  }

  void add_gpu(hwloc_obj_t object, Draft* home) {
    const std::string address = address_of(object);
    const auto known = std::find_if(facts_.gpus.all.begin(), facts_.gpus.all.end(),
                                    [&](const Gpu& gpu) { return gpu.pci == address; });
    const bool is_known = is_this_ && known != facts_.gpus.all.end();
    // Many display adapters are not GPUs for this library.
    if (is_this_ && !is_known) return;
    const auto number = is_known ? static_cast<int>(known - facts_.gpus.all.begin()) : gpus_++;
    Draft* gpu = home->add(NodeKind::kGpu, fmt::format("gpu{}", number));
    gpu->node.pci = address;
    gpu->node.up.gbytes_per_second = static_cast<double>(object->attr->pcidev.linkspeed);
    gpu->node.about = is_known ? known->name : info_of(object, "PCIDevice");
    if (is_known) gpu->node.memory_bytes = known->memory_bytes;
  }

  // An RDMA device and the interface of the same card become one port.
  void add_port(hwloc_obj_t object, Draft* home) {
    std::string name;
    for (hwloc_obj_t os = object->io_first_child; os != nullptr; os = os->next_sibling) {
      if (os->type != HWLOC_OBJ_OS_DEVICE || os->name == nullptr) continue;
      told_.insert(os->name);
      const bool fabric = os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
      if (name.empty() || fabric) name = os->name;
    }
    if (name.empty()) return;  // no driver
    Draft* port = home->add(NodeKind::kPort, name);
    port->node.pci = address_of(object);
    port->node.up.gbytes_per_second = static_cast<double>(object->attr->pcidev.linkspeed);
    if (!is_this_) return;
    for (const PortFact& fact : facts_.ports) {
      if (fact.name == name) describe(*port, fact);
    }
  }

  static void describe(Draft& port, const PortFact& fact) {
    port.node.about = fact.about;
    port.node.out.gbytes_per_second = fact.gbits / 8;
  }

  void add_other_ports() {
    for (const PortFact& fact : facts_.ports) {
      if (!fact.everywhere || !told_.insert(fact.name).second) continue;
      const auto home = numa_.find(static_cast<unsigned>(fact.numa_node));
      describe(*(home == numa_.end() ? &host_ : home->second)->add(NodeKind::kPort, fact.name), fact);
    }
  }

  void number(Draft& draft, std::int32_t parent) {
    const auto own = static_cast<std::int32_t>(graph_.nodes.size());
    draft.node.parent = parent;
    graph_.nodes.push_back(draft.node);
    for (const auto& child : draft.below) number(*child, own);
  }

  void add_nvlinks() {
    const std::vector<Gpu>& all = facts_.gpus.all;
    std::vector<std::int32_t> nodes(all.size(), -1);
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (graph_.nodes[n].kind != NodeKind::kGpu) continue;
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (graph_.nodes[n].pci == all[i].pci) nodes[i] = static_cast<std::int32_t>(n);
      }
    }
    CrossLink crossbar{"NVSwitch", {}, {0, 0}};
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (nodes[i] < 0) continue;
      const double each = gbytes_of_nvlink(all[i].major);
      if (all[i].switch_links > 0) {
        const double rate = all[i].switch_links * each;
        crossbar.speed.gbytes_per_second =
            crossbar.nodes.empty() ? rate : std::min(rate, crossbar.speed.gbytes_per_second);
        crossbar.nodes.push_back(nodes[i]);
      }
      for (std::size_t j = i + 1; j < all.size(); ++j) {
        const unsigned links = j < all[i].peer_links.size() ? all[i].peer_links[j] : 0;
        if (links > 0 && nodes[j] >= 0) graph_.links.push_back({"NVLink", {nodes[i], nodes[j]}, {links * each, 0}});
      }
    }
    if (crossbar.nodes.size() > 1) graph_.links.push_back(std::move(crossbar));
  }

  const HostFacts& facts_;
  hwloc_topology_t topology_;
  bool is_this_;
  Draft host_;
  std::vector<std::pair<hwloc_obj_t, Draft*>> packages_;
  std::map<unsigned, Draft*> numa_;
  std::set<std::string> told_;  // names of interfaces and RDMA devices of PCI devices
  int bridges_ = 0;
  int gpus_ = 0;
  Graph graph_;
};

}  // namespace

double gbytes_of_nvlink(int major) {
  return major >= 10 ? 50 : major >= 7 ? 25 : 20;
}

Result<Graph> host_graph(const HostFacts& facts) {
  const Topology topology = load_devices();
  if (topology == nullptr) return Status::system("hwloc cannot tell what this machine is", errno);
  return Finder(facts, topology.get()).run();
}

}  // namespace tutti::internal::topology
