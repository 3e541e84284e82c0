#include "algorithms/ordered.h"

#include "algorithms/direct.h"

namespace tutti::internal::algorithms {

void ordered_binomial_reduce(Builder& b, const Group& g, int root, ChunkRange c, Completes completes) {
  const int n = g.size();
  const int i = g.index();
  for (int width = 1; width < n; width *= 2) {
    const int left = i / (2 * width) * (2 * width);
    const int right = left + width;
    if (right >= n) continue;
    const auto head = [&](int first) { return root >= first && root < first + width ? root : first; };
    const bool to_the_right = head(right) == root;
    const int from = to_the_right ? head(left) : head(right);
    const int to = to_the_right ? head(right) : head(left);
    if (i == from) return b.send(g.rank(to), c);
    if (i == to) b.recv_reduce(g.rank(from), c, completes_if(2 * width >= n, completes));
  }
}

void ordered_chains_reduce(Builder& b, const Group& g, int root, ChunkRange c, Completes completes) {
  const int last = g.size() - 1;
  const int i = g.index();
  if (i > 0 && i <= root) b.recv_reduce(g.rank(i - 1), c, completes_if(i == last, completes));
  if (i < last && i >= root) b.recv_reduce(g.rank(i + 1), c, completes_if(i == root, completes));
  if (i != root) b.send(g.rank(i < root ? i + 1 : i - 1), c);
}

// Range by range: a second message to a peer comes only after the first messages to all.
void ordered_direct_reduce_scatter(Builder& b, const Group& g, const std::vector<Part>& parts, Completes completes) {
  const int n = g.size();
  const int i = g.index();
  const auto part = [&](int k) -> const Part& { return parts[static_cast<std::size_t>(g.wrap(k))]; };
  const auto now = [&](int combined) { return completes_if(combined == n - 1, completes); };
  for (std::size_t q = 0; q < parts.front().size(); ++q) {
    for (int k = 1; k < n; ++k) b.send(g.rank(i + k), part(i + k)[q]);
    for (int k = 1; k <= i; ++k) b.recv_reduce(g.rank(i - k), part(i)[q], now(k));
    for (int k = i + 1; k < n; ++k) b.recv_reduce(g.rank(k), part(i)[q], now(k));
  }
}

void ordered_two_phase_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes) {
  const std::vector<Part> parts = equal_parts(c, g.size());
  ordered_direct_reduce_scatter(b, g, parts, completes);
  direct_all_gather(b, g, parts);
}

}  // namespace tutti::internal::algorithms
