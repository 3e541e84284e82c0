#include "topology/detect.h"

#include <fmt/core.h>
#include <hwloc.h>
#include <unistd.h>

#include <algorithm>

#include "os/fork.h"
#include "topology/hwloc_topology.h"

namespace tutti::internal::topology {
namespace {

// No search for devices, whose drivers answer slowly, and no thread of this process moved for it.
constexpr unsigned long kFlags = HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING |
                                 HWLOC_TOPOLOGY_FLAG_NO_DISTANCES | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS |
                                 HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS;

// Null where hwloc fails.
Topology load_processors() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_cache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_flags(raw, kFlags);
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

ProcessorSet set_of(hwloc_const_bitmap_t bitmap) {
  ProcessorSet set;
  if (bitmap == nullptr) return set;
  for (int i = hwloc_bitmap_first(bitmap); i >= 0 && i < static_cast<int>(kMaxProcessors);
       i = hwloc_bitmap_next(bitmap, i)) {
    set.set(static_cast<std::size_t>(i));
  }
  return set;
}

// All of one type, in hwloc's order.
template <typename Take>
void for_each(hwloc_topology_t topology, hwloc_obj_type_t type, Take take) {
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;) {
    take(*object);
  }
}

Machine describe(hwloc_topology_t topology) {
  Machine machine;
  machine.processors = set_of(hwloc_topology_get_topology_cpuset(topology));
  machine.permitted = set_of(hwloc_topology_get_allowed_cpuset(topology)) & machine.processors;
  for_each(topology, HWLOC_OBJ_CORE, [&](const hwloc_obj& core) { machine.cores.push_back(set_of(core.cpuset)); });
  for_each(topology, HWLOC_OBJ_PACKAGE, [&](hwloc_obj& package) {
    const char* const model = hwloc_obj_get_info_by_name(&package, "CPUModel");
    if (machine.packages.empty() && model != nullptr) machine.processor_model = model;
    machine.packages.push_back(set_of(package.cpuset));
  });
  for (const hwloc_obj_type_t type :
       {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L5CACHE}) {
    for_each(topology, type, [&](const hwloc_obj& cache) {
      machine.caches.push_back({static_cast<int>(cache.attr->cache.depth),
                                static_cast<std::size_t>(cache.attr->cache.size), set_of(cache.cpuset)});
    });
  }
  for_each(topology, HWLOC_OBJ_NUMANODE, [&](const hwloc_obj& node) {
    machine.numa_nodes.push_back(
        {static_cast<int>(node.os_index), set_of(node.cpuset), node.attr->numanode.local_memory});
  });
  std::sort(machine.numa_nodes.begin(), machine.numa_nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.number < b.number; });
  return machine;
}

// hwloc loads its plugins under its own locks, which a child forked at that moment would never get. Made when the
// library is loaded, and never destroyed, like the data that it guards.
ForkMutex& mutex = *new ForkMutex;
const Machine* found_machine TUTTI_GUARDED_BY(mutex) = nullptr;

Machine look() TUTTI_REQUIRES(mutex) {
  Machine machine;
  if (const Topology topology = load_processors(); topology != nullptr) machine = describe(topology.get());
  if (machine.processors.none()) {
    const long online = std::clamp(::sysconf(_SC_NPROCESSORS_ONLN), 1L, static_cast<long>(kMaxProcessors));
    for (long i = 0; i < online; ++i) machine.processors.set(static_cast<std::size_t>(i));
    machine.permitted = machine.processors;
  }
  return machine;
}

}  // namespace

Machine detect() {
  const MutexLock lock(mutex);
  return look();
}

const Machine& this_machine() {
  const MutexLock lock(mutex);
  if (found_machine == nullptr) found_machine = new Machine(look());
  return *found_machine;
}

std::string list_of(const ProcessorSet& processors) {
  std::string text;
  for (std::size_t first = 0; first < processors.size(); ++first) {
    if (!processors[first]) continue;
    std::size_t last = first;
    while (last + 1 < processors.size() && processors[last + 1]) ++last;
    if (!text.empty()) text += ',';
    text += last == first ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
    first = last;
  }
  return text;
}

// Does not use hwloc, which would answer for another machine if it has that machine's description.
ProcessorSet allowed_processors() {
  cpu_set_t own;
  CPU_ZERO(&own);
  ProcessorSet set;
  if (::sched_getaffinity(0, sizeof own, &own) != 0) return set.set(0);
  for (std::size_t i = 0; i < kMaxProcessors; ++i) set[i] = CPU_ISSET(i, &own) != 0;
  return set;
}

std::vector<int> far_nodes() {
  return this_machine().far_nodes(allowed_processors());
}

int own_node() {
  return this_machine().node_of(allowed_processors());
}

std::size_t Machine::level2_share_bytes(const ProcessorSet& of) const {
  std::size_t least = 0;
  for (const Cache& cache : caches) {
    if (cache.level != 2 || cache.bytes == 0 || (cache.processors & of).none()) continue;
    const std::size_t share = cache.bytes / cache.processors.count();
    least = least == 0 ? share : std::min(least, share);
  }
  return least;
}

std::size_t Machine::last_level_share_bytes(const ProcessorSet& of, std::size_t users) const {
  int last = 0;
  std::size_t all = 0;
  std::size_t largest = 0;
  for (const Cache& cache : caches) {
    if (cache.level < last || cache.bytes == 0 || (cache.processors & of).none()) continue;
    if (cache.level > last) all = largest = 0;
    last = cache.level;
    all += cache.bytes;
    largest = std::max(largest, cache.bytes);
  }
  return std::min(largest, all / std::max<std::size_t>(1, users));
}

int Machine::node_of(const ProcessorSet& of) const {
  if (numa_nodes.size() < 2 || of.none()) return -1;
  int only = -1;
  for (const NumaNode& node : numa_nodes) {
    if ((of & ~node.processors).any()) continue;
    if (only >= 0) return -1;  // some nodes have only high-bandwidth memory, beside the memory of another node
    only = node.number;
  }
  return only;
}

Place Machine::place_of(const ProcessorSet& of) const {
  Place place;
  place.numa_node = node_of(of);
  for (std::size_t i = 0; i < packages.size() && packages.size() > 1 && of.any(); ++i) {
    if ((of & ~packages[i]).none()) place.package = static_cast<int>(i);
  }
  return place;
}

std::vector<int> Machine::far_nodes(const ProcessorSet& of) const {
  std::vector<int> numbers;
  for (const NumaNode& node : numa_nodes) {
    if (node.processors.any() && (node.processors & of).none()) numbers.push_back(node.number);
  }
  return numbers;
}

}  // namespace tutti::internal::topology
