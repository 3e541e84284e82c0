// Shares of described machines.
#include "topology/binding.h"

#include <algorithm>
#include <vector>

#include "catch_compat.h"

namespace tutti::internal::topology {
namespace {

ProcessorSet range(std::size_t first, std::size_t last) {
  ProcessorSet set;
  for (std::size_t i = first; i <= last; ++i) set.set(i);
  return set;
}

ProcessorSet of(const std::vector<std::size_t>& numbers) {
  ProcessorSet set;
  for (const std::size_t i : numbers) set.set(i);
  return set;
}

// Nodes with the same number of cores, cores with the same number of processors; numbered as Linux does: first one of
// each core.
Machine machine_of(std::size_t nodes, std::size_t cores, std::size_t threads) {
  Machine m;
  const std::size_t all = nodes * cores;
  m.processors = m.permitted = range(0, all * threads - 1);
  for (std::size_t core = 0; core < all; ++core) {
    ProcessorSet set;
    for (std::size_t thread = 0; thread < threads; ++thread) set.set(thread * all + core);
    m.cores.push_back(set);
  }
  for (std::size_t node = 0; node < nodes; ++node) {
    ProcessorSet set;
    for (std::size_t core = 0; core < cores; ++core) set |= m.cores[node * cores + core];
    m.numa_nodes.push_back({static_cast<int>(node), set, 1 << 30});
  }
  return m;
}

std::vector<ProcessorSet> shares(const Machine& m, const ProcessorSet& allowed, Bind bind, std::size_t ranks) {
  std::vector<ProcessorSet> result;
  for (std::size_t rank = 0; rank < ranks; ++rank) result.push_back(share_of(m, allowed, bind, rank, ranks));
  return result;
}
std::vector<ProcessorSet> shares(const Machine& m, Bind bind, std::size_t ranks) {
  return shares(m, m.processors, bind, ranks);
}

using Sets = std::vector<ProcessorSet>;

}  // namespace

TEST_CASE("ranks are spread over nodes, neighbours together") {
  const Machine m = machine_of(2, 4, 1);
  const ProcessorSet first = range(0, 3);
  const ProcessorSet second = range(4, 7);
  CHECK(shares(m, Bind::kNone, 2) == Sets{m.processors, m.processors});
  CHECK(shares(m, Bind::kNuma, 1) == Sets{first});
  CHECK(shares(m, Bind::kNuma, 2) == Sets{first, second});
  CHECK(shares(m, Bind::kNuma, 3) == Sets{first, first, second});
  CHECK(shares(m, Bind::kNuma, 4) == Sets{first, first, second, second});
  CHECK(shares(m, Bind::kCore, 1) == Sets{of({0})});
  CHECK(shares(m, Bind::kCore, 2) == Sets{of({0}), of({4})});
  CHECK(shares(m, Bind::kCore, 4) == Sets{of({0}), of({2}), of({4}), of({6})});
}

TEST_CASE("every shape: shares are evenly many, on the core or node that was asked for") {
  for (const std::size_t nodes : {1, 2, 3, 4, 8}) {
    for (const std::size_t cores : {1, 2, 3, 6}) {
      for (const std::size_t threads : {1, 2, 4}) {
        const Machine m = machine_of(nodes, cores, threads);
        for (std::size_t ranks = 1; ranks <= 3 * nodes * cores; ++ranks) {
          INFO(nodes << " nodes, " << cores << " cores, " << threads << " processors each, " << ranks << " ranks");
          const Sets by_core = shares(m, Bind::kCore, ranks);
          const Sets by_node = shares(m, Bind::kNuma, ranks);
          std::vector<std::size_t> on_core(m.cores.size());
          std::vector<std::size_t> on_node(nodes);
          std::size_t last_core = 0;
          for (std::size_t r = 0; r < ranks; ++r) {
            const auto core = std::find(m.cores.begin(), m.cores.end(), by_core[r]);
            REQUIRE(core != m.cores.end());
            const auto number = static_cast<std::size_t>(core - m.cores.begin());
            REQUIRE(number >= last_core);
            last_core = number;
            ++on_core[number];
            const std::size_t node = number / cores;
            REQUIRE(by_node[r] == m.numa_nodes[node].processors);
            ++on_node[node];
          }
          const auto [fewest, most] = std::minmax_element(on_core.begin(), on_core.end());
          REQUIRE(*most - *fewest <= 1);
          const auto [least, greatest] = std::minmax_element(on_node.begin(), on_node.end());
          REQUIRE(*greatest - *least <= 1);
        }
      }
    }
  }
}

TEST_CASE("processors of a core stay together, whatever their numbers") {
  const Machine m = machine_of(2, 2, 2);
  CHECK(shares(m, Bind::kCore, 4) == Sets{of({0, 4}), of({1, 5}), of({2, 6}), of({3, 7})});
  CHECK(shares(m, Bind::kNuma, 2) == Sets{of({0, 1, 4, 5}), of({2, 3, 6, 7})});
  // Cores that are numbered alternately across the nodes.
  Machine crossed = machine_of(1, 4, 1);
  crossed.numa_nodes = {{0, of({0, 2}), 1}, {1, of({1, 3}), 1}};
  CHECK(shares(crossed, Bind::kCore, 4) == Sets{of({0}), of({2}), of({1}), of({3})});
  CHECK(shares(crossed, Bind::kNuma, 2) == Sets{of({0, 2}), of({1, 3})});
}

TEST_CASE("a control group's part is shared by cores, and none gets more") {
  Machine m = machine_of(2, 4, 1);
  m.permitted = of({1, 2, 3, 7});
  // The nodes' parts differ, and so do their numbers of ranks.
  CHECK(shares(m, m.permitted, Bind::kNuma, 4) == Sets{range(1, 3), range(1, 3), range(1, 3), of({7})});
  CHECK(shares(m, m.permitted, Bind::kCore, 4) == Sets{of({1}), of({2}), of({3}), of({7})});
  CHECK(shares(m, m.permitted, Bind::kCore, 8)[7] == of({7}));
  CHECK(shares(m, m.permitted, Bind::kCore, 8)[1] == of({1}));
}

TEST_CASE("a thread that is already bound stays within its processors") {
  const Machine m = machine_of(2, 4, 1);
  // To one node or core: there is no choice.
  CHECK(shares(m, range(4, 7), Bind::kNuma, 2) == Sets{range(4, 7), range(4, 7)});
  CHECK(shares(m, of({5}), Bind::kCore, 8) == Sets(8, of({5})));
  // As many cores as ranks: each can have one, whichever ranks share the mask.
  CHECK(shares(m, range(4, 7), Bind::kCore, 4) == Sets{of({4}), of({5}), of({6}), of({7})});
  CHECK(shares(m, range(2, 5), Bind::kNuma, 2) == Sets{of({2, 3}), of({4, 5})});
  // Fewer: it is not known which ranks share them.
  CHECK(shares(m, range(4, 7), Bind::kCore, 5) == Sets(5, range(4, 7)));
  CHECK(shares(m, range(3, 4), Bind::kNuma, 3) == Sets(3, range(3, 4)));
}

TEST_CASE("a second communicator binds to the same again") {
  for (const Bind bind : {Bind::kCore, Bind::kNuma}) {
    for (const std::size_t threads : {1, 2}) {
      const Machine m = machine_of(2, 3, threads);
      for (std::size_t ranks = 1; ranks <= 14; ++ranks) {
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const ProcessorSet once = share_of(m, m.processors, bind, rank, ranks);
          REQUIRE(share_of(m, once, bind, rank, ranks) == once);
        }
      }
    }
  }
}

TEST_CASE("machines with fewer facts, or with nodes beside nodes") {
  Machine m;
  m.processors = m.permitted = range(0, 3);
  // No cores: each processor is one. No nodes: there is no choice.
  CHECK(shares(m, Bind::kCore, 2) == Sets{of({0}), of({2})});
  CHECK(shares(m, Bind::kNuma, 2) == Sets(2, m.processors));
  CHECK(share_of(m, ProcessorSet(), Bind::kCore, 0, 1).none());
  m = machine_of(2, 2, 1);
  // Without processors; with those of another node; with those of all.
  m.numa_nodes.push_back({2, ProcessorSet(), 1});
  m.numa_nodes.push_back({3, range(2, 3), 1});
  m.numa_nodes.insert(m.numa_nodes.begin(), {4, m.processors, 1});
  CHECK(shares(m, Bind::kNuma, 2) == Sets{range(0, 1), range(2, 3)});
  // Processors that the description does not have.
  CHECK(shares(m, range(8, 9), Bind::kCore, 2) == Sets{of({8}), of({9})});
  CHECK(shares(m, range(8, 9), Bind::kNuma, 2) == Sets(2, range(8, 9)));
}

}  // namespace tutti::internal::topology
