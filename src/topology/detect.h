// What machine this process runs on: processors, packages, cores, caches, NUMA nodes, as hwloc finds them. hwloc's own
// variables hold here too (HWLOC_XMLFILE, HWLOC_SYNTHETIC: another machine's description in place of the kernel's).
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
  int level = 0;  // 1 to 5; caches for instructions alone are left out
  std::size_t bytes = 0;
  ProcessorSet processors;  // that share it
};

struct NumaNode {
  int number = 0;
  ProcessorSet processors;  // may be none
  std::uint64_t memory_bytes = 0;
};

// Where on its host a rank is: the numbers of package and NUMA node. -1: unknown, or it may be in several.
struct Place {
  int package = -1;
  int numa_node = -1;
  bool operator==(const Place&) const = default;
};

// Plain data. What is not told is empty.
struct Machine {
  ProcessorSet processors;  // online, whether this process may use them or not
  ProcessorSet permitted;   // those of them that its control group leaves it; its affinity mask may have fewer
  std::vector<ProcessorSet> packages;
  std::string processor_model;  // of the first package
  std::vector<ProcessorSet> cores;
  std::vector<Cache> caches;
  std::vector<NumaNode> numa_nodes;  // by number

  // The smallest share of a level-2 cache that one of `processors` has, where all that share the cache use it alike.
  // 0: not told.
  [[nodiscard]] std::size_t level2_share_bytes(const ProcessorSet& processors) const;
  // What each of `users` has of the last-level caches of `processors` where they are spread evenly, at most one whole
  // cache. 0: not told.
  [[nodiscard]] std::size_t last_level_share_bytes(const ProcessorSet& processors, std::size_t users) const;
  // Of the NUMA node that has all of `processors`. -1: several have, it is not told, or there is no other.
  [[nodiscard]] int node_of(const ProcessorSet& processors) const;
  // Likewise, with the package, by its place among them.
  [[nodiscard]] Place place_of(const ProcessorSet& processors) const;
  // Numbers of the NUMA nodes that have processors, but none of `processors`.
  [[nodiscard]] std::vector<int> far_nodes(const ProcessorSet& processors) const;
};

// Looks once per process, when it is first asked. Any thread, a forked child's too. Never fails: what hwloc cannot tell
// is missing, but for the processors, which the kernel is then asked for.
const Machine& this_machine();
// Looks now.
Machine detect();

// "0-3,8"; "" if there is none.
std::string list_of(const ProcessorSet& processors);
// Those that the calling thread may run on now: its affinity mask, which the kernel keeps within the control group's.
ProcessorSet allowed_processors();
// Of this machine, seen from the calling thread.
std::vector<int> far_nodes();
int own_node();

}  // namespace tutti::internal::topology
