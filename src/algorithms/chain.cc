#include "algorithms/chain.h"

namespace tutti::internal::algorithms {

void chain_broadcast(Builder& b, const Group& g, int root, ChunkRange c) {
  const int i = g.index();
  if (i != root) b.recv(g.rank(i - 1), c);
  if (g.wrap(i + 1) != root) b.send(g.rank(i + 1), c);
}

void chain_reduce(Builder& b, const Group& g, int root, ChunkRange c, Completes completes) {
  const int i = g.index();
  if (g.wrap(i + 1) != root) b.recv_reduce(g.rank(i + 1), c, completes_if(i == root, completes));
  if (i != root) b.send(g.rank(i - 1), c);
}

}  // namespace tutti::internal::algorithms
