#include "algorithms/hierarchical.h"

#include <utility>

#include "algorithms/chain.h"
#include "algorithms/direct.h"
#include "algorithms/doubling.h"
#include "algorithms/k_nomial.h"
#include "algorithms/ring.h"

namespace tutti::internal::algorithms {
namespace {

constexpr int kNoRoot = -1;

Levels levels_of(const Builder& b, const Hierarchy& hierarchy) {
  return {hierarchy, b.shape().ranks, b.rank()};
}

// By index at that level: the blocks of the ranks with this rank's position at all inner levels.
std::vector<Part> parts_by_place(const Levels& levels, std::size_t level, ChunkRange c, int ranks) {
  std::vector<Part> parts;
  for (const auto& group : levels.layer(level)) {
    parts.resize(group.size());
    for (std::size_t j = 0; j < group.size(); ++j) {
      parts[j].push_back(c.part(static_cast<std::uint32_t>(group[j]), static_cast<std::uint32_t>(ranks)));
    }
  }
  return parts;
}

// For the outermost level: each peer's own part.
std::vector<Part> own_parts(const Group& peers, ChunkRange c, int ranks) {
  std::vector<Part> parts;
  for (int i = 0; i < peers.size(); ++i) {
    parts.push_back({c.part(static_cast<std::uint32_t>(peers.rank(i)), static_cast<std::uint32_t>(ranks))});
  }
  return parts;
}

constexpr int kBinomial = 2;  // radix

void tree_broadcast(Builder& b, const Group& g, Tree tree, int root, ChunkRange c) {
  if (tree == Tree::kChain) return chain_broadcast(b, g, root, c);
  k_nomial_broadcast(b, g, root, c, kBinomial);
}

void tree_reduce(Builder& b, const Group& g, Tree tree, int root, ChunkRange c, Completes completes) {
  if (tree == Tree::kChain) return chain_reduce(b, g, root, c, 1, completes);
  k_nomial_reduce(b, g, root, c, kBinomial, completes);
}

// To the leaders of the outermost groups, from the innermost level on.
void reduce_to_leaders(Builder& b, const Levels& levels, Tree tree, int root, ChunkRange c) {
  for (std::size_t level = levels.innermost(); level > 0 && levels.leads(level, root); --level) {
    const Group leaders = levels.leaders(level, root);
    tree_reduce(b, leaders, tree, levels.head(level, root, leaders), c, Completes::kNo);
  }
}

void broadcast_from_leaders(Builder& b, const Levels& levels, Tree tree, int root, ChunkRange c) {
  for (std::size_t level = 1; level <= levels.innermost(); ++level) {
    if (!levels.leads(level, root)) continue;
    const Group leaders = levels.leaders(level, root);
    tree_broadcast(b, leaders, tree, levels.head(level, root, leaders), c);
  }
}

void all_reduce_by_leaders(Builder& b, const Levels& levels, ChunkRange c, Completes completes) {
  reduce_to_leaders(b, levels, Tree::kChain, kNoRoot, c);
  if (levels.leads(0, kNoRoot)) ring_all_reduce(b, levels.leaders(0, kNoRoot), c, completes);
  broadcast_from_leaders(b, levels, Tree::kChain, kNoRoot, c);
}

}  // namespace

void hierarchical_all_reduce(Builder& b, const Hierarchy& hierarchy, ChunkRange c, Completes completes) {
  const Levels levels = levels_of(b, hierarchy);
  if (!hierarchy.are_equal()) return all_reduce_by_leaders(b, levels, c, completes);
  std::vector<std::pair<Group, std::vector<Part>>> shared;
  for (std::size_t level = levels.innermost(); level > 0; --level) {
    const Group peers = levels.peers(level);
    std::vector<Part> parts = equal_parts(c, peers.size());
    direct_reduce_scatter(b, peers, parts, Completes::kNo);
    c = parts[static_cast<std::size_t>(peers.index())].front();
    shared.emplace_back(peers, std::move(parts));
  }
  ring_all_reduce(b, levels.peers(0), c, completes);
  for (; !shared.empty(); shared.pop_back()) direct_all_gather(b, shared.back().first, shared.back().second);
}

void hierarchical_doubling_all_reduce(Builder& b, const Hierarchy& hierarchy, ChunkRange c, Completes completes) {
  const Levels levels = levels_of(b, hierarchy);
  reduce_to_leaders(b, levels, Tree::kBinomial, kNoRoot, c);
  if (levels.leads(0, kNoRoot)) doubling_all_reduce(b, levels.leaders(0, kNoRoot), c, completes);
  broadcast_from_leaders(b, levels, Tree::kBinomial, kNoRoot, c);
}

void hierarchical_broadcast(Builder& b, const Hierarchy& hierarchy, Tree tree, int root, ChunkRange c) {
  const Levels levels = levels_of(b, hierarchy);
  if (levels.leads(0, root)) {
    const Group leaders = levels.leaders(0, root);
    tree_broadcast(b, leaders, tree, levels.head(0, root, leaders), c);
  }
  broadcast_from_leaders(b, levels, tree, root, c);
}

void hierarchical_reduce(Builder& b, const Hierarchy& hierarchy, Tree tree, int root, ChunkRange c,
                         Completes completes) {
  const Levels levels = levels_of(b, hierarchy);
  reduce_to_leaders(b, levels, tree, root, c);
  if (!levels.leads(0, root)) return;
  const Group leaders = levels.leaders(0, root);
  tree_reduce(b, leaders, tree, levels.head(0, root, leaders), c, completes);
}

void hierarchical_reduce_scatter(Builder& b, const Hierarchy& hierarchy, ChunkRange c, Completes completes) {
  const Levels levels = levels_of(b, hierarchy);
  for (std::size_t level = levels.innermost(); level > 0; --level) {
    direct_reduce_scatter(b, levels.peers(level), parts_by_place(levels, level, c, b.shape().ranks), Completes::kNo);
  }
  const Group outermost = levels.peers(0);
  ring_reduce_scatter(b, outermost, own_parts(outermost, c, b.shape().ranks), completes);
}

void hierarchical_all_gather(Builder& b, const Hierarchy& hierarchy, ChunkRange c) {
  const Levels levels = levels_of(b, hierarchy);
  const Group outermost = levels.peers(0);
  ring_all_gather(b, outermost, own_parts(outermost, c, b.shape().ranks));
  for (std::size_t level = 1; level <= levels.innermost(); ++level) {
    direct_all_gather(b, levels.peers(level), parts_by_place(levels, level, c, b.shape().ranks));
  }
}

}  // namespace tutti::internal::algorithms
