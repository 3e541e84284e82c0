#include "algorithms/halving.h"

#include "algorithms/fold.h"

namespace tutti::internal::algorithms {
namespace {

// cuts[v] .. cuts[v + 1] are the chunks that folded member v keeps; between(lo, hi) those of lo .. hi - 1.
struct Cuts {
  std::vector<std::uint32_t> at;
  [[nodiscard]] ChunkRange between(int lo, int hi) const {
    const std::uint32_t first = at[static_cast<std::size_t>(lo)];
    return {first, at[static_cast<std::size_t>(hi)] - first};
  }
};

// One part for each member: folded member v keeps those of the members that it represents.
Cuts cuts_by_member(const Group& g, const Fold& fold, ChunkRange c) {
  Cuts cuts;
  const std::uint32_t share = c.count / static_cast<std::uint32_t>(g.size());
  for (int v = 0; v <= fold.size(); ++v) {
    cuts.at.push_back(c.first + static_cast<std::uint32_t>(fold.member(v)) * share);
  }
  return cuts;
}

// REQUIRES: this member has a folded index.
void halve(Builder& b, const Fold& fold, const Cuts& cuts, Completes completes) {
  const int v = fold.index();
  for (int distance = fold.size() / 2; distance >= 1; distance /= 2) {
    const int peer = fold.rank(v ^ distance);
    const int lo = v / distance * distance;  // mine are lo .. lo + distance - 1, the peer's lie beside
    const int other = lo ^ distance;
    b.send(peer, cuts.between(other, other + distance));
    b.recv_reduce(peer, cuts.between(lo, lo + distance), completes_if(distance == 1, completes));
  }
}

void double_up(Builder& b, const Fold& fold, const Cuts& cuts) {
  const int v = fold.index();
  for (int distance = 1; distance < fold.size(); distance *= 2) {
    const int peer = fold.rank(v ^ distance);
    const int lo = v / distance * distance;
    const int other = lo ^ distance;
    b.send(peer, cuts.between(lo, lo + distance));
    b.recv(peer, cuts.between(other, other + distance));
  }
}

}  // namespace

void halving_doubling_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes) {
  const Fold fold(g);
  if (fold.gives_away()) {
    b.send(fold.partner(), c);
    b.recv(fold.partner(), c);
    return;
  }
  Cuts cuts;
  const std::uint32_t share = c.count / static_cast<std::uint32_t>(fold.size());
  for (int v = 0; v <= fold.size(); ++v) cuts.at.push_back(c.first + static_cast<std::uint32_t>(v) * share);
  if (fold.takes_in()) b.recv_reduce(fold.partner(), c);
  halve(b, fold, cuts, completes);
  double_up(b, fold, cuts);
  if (fold.takes_in()) b.send(fold.partner(), c);
}

void halving_reduce_scatter(Builder& b, const Group& g, ChunkRange c, Completes completes) {
  const Fold fold(g);
  const auto part = [&](int i) { return c.part(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(g.size())); };
  if (fold.gives_away()) {
    b.send(fold.partner(), c);
    b.recv(fold.partner(), part(g.index()));
    return;
  }
  const Cuts cuts = cuts_by_member(g, fold, c);
  if (fold.takes_in()) b.recv_reduce(fold.partner(), c);
  halve(b, fold, cuts, completes);
  if (fold.takes_in()) b.send(fold.partner(), part(g.index() + 1));
}

void doubling_all_gather(Builder& b, const Group& g, ChunkRange c) {
  const Fold fold(g);
  const auto part = [&](int i) { return c.part(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(g.size())); };
  if (fold.gives_away()) {
    b.send(fold.partner(), part(g.index()));
    b.recv(fold.partner(), c);
    return;
  }
  b.copy_to_output(part(g.index()));
  if (fold.takes_in()) b.recv(fold.partner(), part(g.index() + 1));
  double_up(b, fold, cuts_by_member(g, fold, c));
  if (fold.takes_in()) b.send(fold.partner(), c);
}

}  // namespace tutti::internal::algorithms
