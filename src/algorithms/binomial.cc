#include "algorithms/binomial.h"

#include <algorithm>

namespace tutti::internal::algorithms {
namespace {

// Members are numbered from the root: v. The parent of v is v without its lowest bit; its children are
// v + 1, v + 2, v + 4, ... below that bit.
int lowest_bit(int v, int n) {
  if (v != 0) return v & -v;
  int bit = 1;
  while (bit < n) bit *= 2;
  return bit;
}

// Rank r's place in the tree over all ranks, numbered from the root.
struct Node {
  int n;     // members in all
  int root;  // rank
  int v;
  int bit;
  std::uint32_t parts;  // chunks of a block

  explicit Node(const Builder& b)
      : n(b.shape().ranks),
        root(b.shape().root),
        v((b.rank() - root + n) % n),
        bit(lowest_bit(v, n)),
        parts(b.shape().chunks_per_block()) {}

  [[nodiscard]] int rank(int member) const { return (root + member) % n; }
  // Members below child v + distance, itself among them.
  [[nodiscard]] int below(int distance) const { return std::min(distance, n - v - distance); }
  [[nodiscard]] std::uint32_t block(int member) const { return static_cast<std::uint32_t>(rank(member)) * parts; }
  // Calls f(first chunk, chunks) for the blocks of `count` members from `first` on, which lie one behind the other in
  // the vector but for where the ranks begin anew.
  template <class F>
  void for_blocks(int first, int count, F f) const {
    const int until_wrap = std::min(count, n - rank(first));
    f(block(first), static_cast<std::uint32_t>(until_wrap) * parts);
    if (until_wrap < count) f(0, static_cast<std::uint32_t>(count - until_wrap) * parts);
  }
  // In scratch, the blocks of the members below v + distance.
  [[nodiscard]] Builder::At kept(int distance) const {
    return {Buffer::kScratch, static_cast<std::uint32_t>(distance) * parts};
  }
  [[nodiscard]] std::uint32_t chunks_below(int distance) const {
    return static_cast<std::uint32_t>(below(distance)) * parts;
  }
};

}  // namespace

void binomial_broadcast(Builder& b, const Group& g, int root, ChunkRange c) {
  const int n = g.size();
  const int v = g.wrap(g.index() - root);
  const int bit = lowest_bit(v, n);
  if (v != 0) b.recv(g.rank((root + v - bit) % n), c);
  for (int child = bit / 2; child >= 1; child /= 2) {
    if (v + child < n) b.send(g.rank((root + v + child) % n), c);
  }
}

void binomial_reduce(Builder& b, const Group& g, int root, ChunkRange c, Completes completes) {
  const int n = g.size();
  const int v = g.wrap(g.index() - root);
  const int bit = lowest_bit(v, n);
  for (int child = 1; child < bit && v + child < n; child *= 2) {
    const bool last = v == 0 && child * 2 >= n;
    b.recv_reduce(g.rank((root + v + child) % n), c, completes_if(last, completes));
  }
  if (v != 0) b.send(g.rank((root + v - bit) % n), c);
}

void binomial_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes) {
  binomial_reduce(b, g, 0, c, completes);
  binomial_broadcast(b, g, 0, c);
}

void binomial_gather(Builder& b) {
  b.run_whole();
  const Node node(b);
  int children = 0;
  for (int child = 1; child < node.bit && node.v + child < node.n; child *= 2) {
    const int from = node.rank(node.v + child);
    children += node.below(child);
    if (node.v != 0) {
      b.recv_into(from, node.kept(child), node.chunks_below(child));
      continue;
    }
    node.for_blocks(child, node.below(child), [&](std::uint32_t first, std::uint32_t chunks) {
      b.recv_into(from, {Buffer::kOutput, first}, chunks);
    });
  }
  if (node.v == 0) return;
  const int parent = node.rank(node.v - node.bit);
  b.send_from(parent, {Buffer::kInput, node.block(node.v)}, node.parts);
  if (children > 0) b.send_from(parent, node.kept(1), static_cast<std::uint32_t>(children) * node.parts);
}

void binomial_scatter(Builder& b) {
  b.run_whole();
  const Node node(b);
  if (node.v != 0) {
    const int parent = node.rank(node.v - node.bit);
    const int mine = std::min(node.bit, node.n - node.v);
    b.recv_into(parent, {Buffer::kOutput, node.block(node.v)}, node.parts);
    if (mine > 1) b.recv_into(parent, node.kept(1), static_cast<std::uint32_t>(mine - 1) * node.parts);
  }
  for (int child = node.bit / 2; child >= 1; child /= 2) {
    if (node.v + child >= node.n) continue;
    const int to = node.rank(node.v + child);
    if (node.v != 0) {
      b.send_from(to, node.kept(child), node.chunks_below(child));
      continue;
    }
    node.for_blocks(child, node.below(child), [&](std::uint32_t first, std::uint32_t chunks) {
      b.send_from(to, {Buffer::kInput, first}, chunks);
    });
  }
}

}  // namespace tutti::internal::algorithms
