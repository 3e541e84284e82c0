#include "topology/binding.h"

#include <algorithm>
#include <vector>

namespace tutti::internal::topology {
namespace {

// The processors of one core that a rank may use.
struct Share {
  std::size_t node = 0;  // index in Machine::numa_nodes; their number: none has it
  std::size_t first = 0;
  ProcessorSet processors;
};

std::size_t first_of(const ProcessorSet& processors) {
  std::size_t first = 0;
  while (!processors[first]) ++first;
  return first;
}

// The smallest node with the processor: there may also be a node of the whole package, and memory of another kind with
// the same processors.
std::size_t node_index_of(const Machine& machine, std::size_t processor) {
  std::size_t found = machine.numa_nodes.size();
  std::size_t least = kMaxProcessors + 1;
  for (std::size_t i = 0; i < machine.numa_nodes.size(); ++i) {
    const ProcessorSet& processors = machine.numa_nodes[i].processors;
    if (!processors[processor] || processors.count() >= least) continue;
    found = i;
    least = processors.count();
  }
  return found;
}

// Sorted by NUMA node. A processor without a known core counts as a separate core.
std::vector<Share> cores_of(const Machine& machine, const ProcessorSet& allowed) {
  std::vector<Share> shares;
  const auto add = [&](const ProcessorSet& processors) {
    if (processors.none()) return;
    const std::size_t first = first_of(processors);
    shares.push_back({node_index_of(machine, first), first, processors});
  };
  ProcessorSet left = allowed;
  for (const ProcessorSet& core : machine.cores) {
    add(core & left);
    left &= ~core;
  }
  for (std::size_t i = 0; i < kMaxProcessors; ++i) {
    if (left[i]) add(ProcessorSet().set(i));
  }
  std::sort(shares.begin(), shares.end(),
            [](const Share& a, const Share& b) { return a.node != b.node ? a.node < b.node : a.first < b.first; });
  return shares;
}

}  // namespace

ProcessorSet share_of(const Machine& machine, const ProcessorSet& allowed, Bind bind, std::size_t rank,
                      std::size_t ranks) {
  if (bind == Bind::kNone) return allowed;
  const std::vector<Share> cores = cores_of(machine, allowed);
  const bool bound_before = (machine.permitted & ~allowed).any();
  if (cores.empty() || (bound_before && ranks > cores.size())) return allowed;
  const Share& core = cores[rank * cores.size() / ranks];
  if (bind == Bind::kCore) return core.processors;
  return core.node < machine.numa_nodes.size() ? machine.numa_nodes[core.node].processors & allowed : allowed;
}

}  // namespace tutti::internal::topology
