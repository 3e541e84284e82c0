#include "algorithms/binomial.h"

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

}  // namespace tutti::internal::algorithms
