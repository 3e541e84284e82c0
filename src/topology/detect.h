// The machine of this process: processors, packages, cores, caches, NUMA nodes, from hwloc. hwloc's variables apply
// (HWLOC_XMLFILE, HWLOC_SYNTHETIC: the description of another machine).
#pragma once

#include <sched.h>

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::internal::topology {

// By the kernel's numbers; hwloc's OS index.
inline constexpr std::size_t kMaxProcessors = CPU_SETSIZE;
using ProcessorSet = std::bitset<kMaxProcessors>;

struct Cache {
  int level = 0;  // 1 to 5; without instruction caches
  std::size_t bytes = 0;
  ProcessorSet processors;  // that share it
};

struct NumaNode {
  int number = 0;
  ProcessorSet processors;  // may be none
  std::uint64_t memory_bytes = 0;
};

// The position of a rank on its host: package and NUMA node. -1: unknown, or several.
struct Place {
  int package = -1;
  int numa_node = -1;
  bool operator==(const Place&) const = default;
};

// Plain data. Unknown values are empty.
struct Machine {
  ProcessorSet processors;  // online, whether this process may use them or not
  ProcessorSet permitted;   // the processors that the control group permits; the affinity mask may have fewer
  std::vector<ProcessorSet> packages;
  std::string processor_model;  // of the first package
  std::vector<ProcessorSet> cores;
  std::vector<Cache> caches;
  std::vector<NumaNode> numa_nodes;  // by number

  // The smallest share of a level-2 cache for one of `processors`, if all sharers use the cache equally. 0: unknown.
  [[nodiscard]] std::size_t level2_share_bytes(const ProcessorSet& processors) const;
  // The share of each of `users` in the last-level caches of `processors`, if they are spread evenly; at most one whole
  // cache. 0: unknown.
  [[nodiscard]] std::size_t last_level_share_bytes(const ProcessorSet& processors, std::size_t users) const;
  // The number of the NUMA node that contains all of `processors`. -1: several nodes do, it is unknown, or the machine
  // has only one node.
  [[nodiscard]] int node_of(const ProcessorSet& processors) const;
  // The same, with the package's index.
  [[nodiscard]] Place place_of(const ProcessorSet& processors) const;
  // Numbers of the NUMA nodes that have processors, but none of `processors`.
  [[nodiscard]] std::vector<int> far_nodes(const ProcessorSet& processors) const;
};

// Detected once for each process, at the first call. Any thread, also in a forked child. Never fails: values that hwloc
// does not know are missing, except the processors, which then come from the kernel.
const Machine& this_machine();
// Detects the machine now.
Machine detect();

// "0-3,8"; "" if there is none.
std::string list_of(const ProcessorSet& processors);
// The processors on which the calling thread may run now: its affinity mask, which the kernel keeps within the control
// group's.
ProcessorSet allowed_processors();
// The far nodes of the calling thread.
std::vector<int> far_nodes();
int own_node();

}  // namespace tutti::internal::topology
