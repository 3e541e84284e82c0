#include "algorithms/k_nomial.h"

#include <algorithm>

namespace tutti::internal::algorithms {
namespace {

// Member v's position in the tree of n. Its subtree has v .. v + span - 1, as far as these exist.
struct TreePosition {
  int n;
  int v;
  int radix;
  std::int64_t span;  // a power of the radix

  TreePosition(int members, int member, int k) : n(members), v(member), radix(k), span(1) {
    while (span < n && v % (span * radix) == 0) span *= radix;
  }

  // The distance to its parent. REQUIRES: v != 0.
  [[nodiscard]] int to_parent() const { return static_cast<int>(v / span % radix * span); }
  // The number of members in the subtree of child v + distance. `unit`: as in the callbacks.
  [[nodiscard]] int below(int distance, int unit) const { return std::min(unit, n - v - distance); }
  // Calls f(distance, unit) for each child v + distance, whose own children are less than `unit` away: those with the
  // fewest members below them first.
  template <class F>
  void for_children(F f) const {
    for (std::int64_t unit = 1; unit < span; unit *= radix) for_children_of(unit, f);
  }
  // The child with the largest subtree first.
  template <class F>
  void for_children_from_largest(F f) const {
    for (std::int64_t unit = span / radix; unit >= 1; unit /= radix) for_children_of(unit, f);
  }

 private:
  template <class F>
  void for_children_of(std::int64_t unit, F f) const {
    for (std::int64_t d = unit; d < unit * radix && v + d < n; d += unit)
      f(static_cast<int>(d), static_cast<int>(unit));
  }
};

// Rank r's position in the tree over all ranks, with their blocks.
struct Node : TreePosition {
  int root;             // rank
  std::uint32_t parts;  // chunks of a block

  Node(const Builder& b, int k)
      : TreePosition(b.shape().ranks, (b.rank() - b.shape().root + b.shape().ranks) % b.shape().ranks, k),
        root(b.shape().root),
        parts(b.shape().chunks_per_block()) {}

  [[nodiscard]] int rank(int member) const { return (root + member) % n; }
  [[nodiscard]] std::uint32_t block(int member) const { return static_cast<std::uint32_t>(rank(member)) * parts; }
  // Calls f(first chunk, chunks) for the blocks of `count` members from `first` on, which are contiguous in the vector
  // except where ranks wrap around.
  template <class F>
  void for_blocks(int first, int count, F f) const {
    const int until_wrap = std::min(count, n - rank(first));
    f(block(first), static_cast<std::uint32_t>(until_wrap) * parts);
    if (until_wrap < count) f(0, static_cast<std::uint32_t>(count - until_wrap) * parts);
  }
  // The blocks of the subtree of v + distance in scratch.
  [[nodiscard]] Builder::At kept(int distance) const {
    return {Buffer::kScratch, static_cast<std::uint32_t>(distance) * parts};
  }
  [[nodiscard]] std::uint32_t chunks_below(int distance, int unit) const {
    return static_cast<std::uint32_t>(below(distance, unit)) * parts;
  }
};

}  // namespace

void k_nomial_broadcast(Builder& b, const Group& g, int root, ChunkRange c, int radix) {
  const TreePosition position(g.size(), g.wrap(g.index() - root), radix);
  const auto rank = [&](int member) { return g.rank((root + member) % position.n); };
  if (position.v != 0) b.recv(rank(position.v - position.to_parent()), c);
  position.for_children_from_largest([&](int distance, int) { b.send(rank(position.v + distance), c); });
}

void k_nomial_reduce(Builder& b, const Group& g, int root, ChunkRange c, int radix, Completes completes) {
  const TreePosition position(g.size(), g.wrap(g.index() - root), radix);
  const auto rank = [&](int member) { return g.rank((root + member) % position.n); };
  position.for_children([&](int distance, int unit) {
    const bool last = position.v == 0 && distance + unit >= position.n;
    b.recv_reduce(rank(position.v + distance), c, completes_if(last, completes));
  });
  if (position.v != 0) b.send(rank(position.v - position.to_parent()), c);
}

void k_nomial_all_reduce(Builder& b, const Group& g, ChunkRange c, int radix, Completes completes) {
  k_nomial_reduce(b, g, 0, c, radix, completes);
  k_nomial_broadcast(b, g, 0, c, radix);
}

void k_nomial_gather(Builder& b, int radix) {
  b.run_whole();
  const Node node(b, radix);
  int children = 0;
  node.for_children([&](int distance, int unit) {
    const int from = node.rank(node.v + distance);
    children += node.below(distance, unit);
    if (node.v != 0) return b.recv_into(from, node.kept(distance), node.chunks_below(distance, unit));
    node.for_blocks(distance, node.below(distance, unit), [&](std::uint32_t first, std::uint32_t chunks) {
      b.recv_into(from, {Buffer::kOutput, first}, chunks);
    });
  });
  if (node.v == 0) return;
  const int parent = node.rank(node.v - node.to_parent());
  b.send_from(parent, {Buffer::kInput, node.block(node.v)}, node.parts);
  if (children > 0) b.send_from(parent, node.kept(1), static_cast<std::uint32_t>(children) * node.parts);
}

void k_nomial_scatter(Builder& b, int radix) {
  b.run_whole();
  const Node node(b, radix);
  if (node.v != 0) {
    const int parent = node.rank(node.v - node.to_parent());
    const auto mine = static_cast<std::uint32_t>(std::min<std::int64_t>(node.span, node.n - node.v));
    b.recv_into(parent, {Buffer::kOutput, node.block(node.v)}, node.parts);
    if (mine > 1) b.recv_into(parent, node.kept(1), (mine - 1) * node.parts);
  }
  node.for_children_from_largest([&](int distance, int unit) {
    const int to = node.rank(node.v + distance);
    if (node.v != 0) return b.send_from(to, node.kept(distance), node.chunks_below(distance, unit));
    node.for_blocks(distance, node.below(distance, unit), [&](std::uint32_t first, std::uint32_t chunks) {
      b.send_from(to, {Buffer::kInput, first}, chunks);
    });
  });
}

}  // namespace tutti::internal::algorithms
