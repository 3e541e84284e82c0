#include "algorithms/double_tree.h"

namespace tutti::internal::algorithms {
namespace {

// The parent of x in the symmetric order on 1 .. m; 0: the root above the tree. It is x with its lowest bit moved up by
// one; if that is beyond m, the parent of that, and so on.
int parent_in_order(int x, int m) {
  int bit = x & -x;
  do {
    x = (x & ~bit) | (bit << 1);
    bit <<= 1;
    if (bit > m) return 0;
  } while (x > m);
  return x;
}

// Tree 0 or 1 over the members, numbered from the root of the collective (0).
struct BinaryTree {
  int m;      // members below the root
  int which;  // 0, 1

  // Member x at place y of the symmetric order and back.
  [[nodiscard]] int place(int x) const { return which == 0 ? x : m % 2 == 0 ? m + 1 - x : x % m + 1; }
  [[nodiscard]] int member(int y) const { return which == 0 ? y : m % 2 == 0 ? m + 1 - y : (y + m - 2) % m + 1; }
  // REQUIRES: x >= 1.
  [[nodiscard]] int parent(int x) const {
    const int above = parent_in_order(place(x), m);
    return above == 0 ? 0 : member(above);
  }
  [[nodiscard]] std::vector<int> children(int x) const {
    std::vector<int> result;
    for (int y = 1; y <= m; ++y) {
      const int child = member(y);
      if (parent(child) == x) result.push_back(child);
    }
    return result;
  }
};

struct View {
  const Group& g;
  int root;
  [[nodiscard]] int me() const { return g.wrap(g.index() - root); }
  [[nodiscard]] int rank(int x) const { return g.rank((root + x) % g.size()); }
};

}  // namespace

void double_tree_broadcast(Builder& b, const Group& g, int root, ChunkRange c) {
  const View view{g, root};
  for (int which = 0; which < 2; ++which) {
    const BinaryTree tree{g.size() - 1, which};
    const ChunkRange half = c.part(static_cast<std::uint32_t>(which), 2);
    if (view.me() != 0) b.recv(view.rank(tree.parent(view.me())), half);
    for (const int child : tree.children(view.me())) b.send(view.rank(child), half);
  }
}

void double_tree_reduce(Builder& b, const Group& g, int root, ChunkRange c, Completes completes) {
  const View view{g, root};
  for (int which = 0; which < 2; ++which) {
    const BinaryTree tree{g.size() - 1, which};
    const ChunkRange half = c.part(static_cast<std::uint32_t>(which), 2);
    for (const int child : tree.children(view.me())) {
      b.recv_reduce(view.rank(child), half, completes_if(view.me() == 0, completes));  // the root has one child
    }
    if (view.me() != 0) b.send(view.rank(tree.parent(view.me())), half);
  }
}

void double_tree_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes) {
  double_tree_reduce(b, g, 0, c, completes);
  double_tree_broadcast(b, g, 0, c);
}

}  // namespace tutti::internal::algorithms
