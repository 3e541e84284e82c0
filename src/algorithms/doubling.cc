#include "algorithms/doubling.h"

#include <algorithm>

#include "algorithms/fold.h"

namespace tutti::algorithms {

void doubling_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes) {
  const Fold fold(g);
  if (fold.gives_away()) {
    b.send(fold.partner(), c);
    b.recv(fold.partner(), c);
    return;
  }
  if (fold.takes_in()) b.recv_reduce(fold.partner(), c);
  const int v = fold.index();
  for (int distance = 1; distance < fold.size(); distance *= 2) {
    const Completes now = completes_if(distance * 2 == fold.size(), completes);
    const int peer = fold.rank(v ^ distance);
    b.send(peer, c);
    if ((v & distance) == 0) {
      b.recv_aside(peer, c);
      b.fold_aside(c, now);
    } else {
      b.recv_reduce(peer, c, now);
    }
  }
  if (fold.takes_in()) b.send(fold.partner(), c);
}

void bruck_all_gather(Builder& b, const Group& g, const std::vector<Part>& parts) {
  const int n = g.size();
  const int i = g.index();
  const auto part = [&](int k) -> const Part& { return parts[static_cast<std::size_t>(k % n)]; };
  for (int have = 1; have < n; have *= 2) {
    const int count = std::min(have, n - have);
    for (int k = 0; k < count; ++k) send(b, g.rank(i - have), part(i + k));
    for (int k = 0; k < count; ++k) recv(b, g.rank((i + have) % n), part(i + have + k));
  }
}

}  // namespace tutti::algorithms
