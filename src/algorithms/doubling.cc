#include "algorithms/doubling.h"

#include <algorithm>

#include "algorithms/fold.h"

namespace tutti::internal::algorithms {

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
      b.recv_to_scratch(peer, c);
      b.reduce_from_scratch(c, ScratchComes::kLast, now);
    } else {
      b.recv_reduce(peer, c, now);
    }
  }
  if (fold.takes_in()) b.send(fold.partner(), c);
}

void bruck_all_gather(Builder& b, const Group& g, ChunkRange c) {
  const int n = g.size();
  const int i = g.index();
  // Parts first .. first + count - 1, cut where they wrap around.
  const auto parts = [&](int first, int count) {
    const std::uint32_t share = c.count / static_cast<std::uint32_t>(n);
    const auto range = [&](int from, int to) {
      return ChunkRange{c.first + static_cast<std::uint32_t>(from) * share,
                        static_cast<std::uint32_t>(to - from) * share};
    };
    const int from = first % n;
    if (from + count <= n) return Part{range(from, from + count)};
    return Part{range(from, n), range(0, from + count - n)};
  };
  b.copy_to_output(parts(i, 1).front());
  for (int have = 1; have < n; have *= 2) {
    const int count = std::min(have, n - have);
    const Part out = parts(i, count);
    const Part in = parts(i + have, count);
    // Alternately, so that no member sends a second message before all have taken a first one.
    for (std::size_t q = 0; q < 2; ++q) {
      if (q < out.size()) b.send(g.rank(i - have), out[q]);
      if (q < in.size()) b.recv(g.rank(i + have), in[q]);
    }
  }
}

}  // namespace tutti::internal::algorithms
