#include "algorithms/ring.h"

namespace tutti::internal::algorithms {

void ring_reduce_scatter(Builder& b, const Group& g, const std::vector<Part>& parts, Completes completes) {
  const int n = g.size();
  const int i = g.index();
  const auto part = [&](int k) -> const Part& { return parts[static_cast<std::size_t>(g.wrap(k))]; };
  for (int k = 1; k < n; ++k) {
    for (std::size_t q = 0; q < parts.front().size(); ++q) {
      b.send(g.rank(i + 1), part(i - k)[q]);
      b.recv_reduce(g.rank(i - 1), part(i - k - 1)[q], completes_if(k == n - 1, completes));
    }
  }
}

void ring_all_gather(Builder& b, const Group& g, const std::vector<Part>& parts) {
  const int n = g.size();
  const int i = g.index();
  const auto part = [&](int k) -> const Part& { return parts[static_cast<std::size_t>(g.wrap(k))]; };
  for (int k = 0; k < n - 1; ++k) {
    for (std::size_t q = 0; q < parts.front().size(); ++q) {
      b.send(g.rank(i + 1), part(i - k)[q]);
      b.recv(g.rank(i - 1), part(i - k - 1)[q]);
    }
  }
}

void ring_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes) {
  const std::vector<Part> parts = equal_parts(c, g.size());
  ring_reduce_scatter(b, g, parts, completes);
  ring_all_gather(b, g, parts);
}

}  // namespace tutti::internal::algorithms
