#include "algorithms/chain.h"

namespace tutti::internal::algorithms {

void chain_broadcast(Builder& b, const Group& g, int root, ChunkRange c, int pieces) {
  const int i = g.index();
  for (const Part& piece : equal_parts(c, pieces)) {
    if (i != root) b.recv(g.rank(i - 1), piece.front());
    if (g.wrap(i + 1) != root) b.send(g.rank(i + 1), piece.front());
  }
}

void chain_reduce(Builder& b, const Group& g, int root, ChunkRange c, int pieces, Completes completes) {
  const int i = g.index();
  for (const Part& piece : equal_parts(c, pieces)) {
    if (g.wrap(i + 1) != root) b.recv_reduce(g.rank(i + 1), piece.front(), completes_if(i == root, completes));
    if (i != root) b.send(g.rank(i - 1), piece.front());
  }
}

}  // namespace tutti::internal::algorithms
