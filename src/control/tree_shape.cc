#include "control/tree_shape.h"

#include <algorithm>
#include <cstdint>

namespace tutti::internal {

std::vector<int> tree_children(int rank, int ranks) {
  std::vector<int> children;
  for (std::int64_t i = 1; i <= kTreeArity; ++i) {
    const std::int64_t child = std::int64_t{rank} * kTreeArity + i;
    if (child < ranks) children.push_back(static_cast<int>(child));
  }
  return children;
}

// One level after the other.
RankSet tree_below(int rank, int ranks) {
  RankSet below;
  std::int64_t first = rank;
  std::int64_t last = rank;
  for (; first < ranks; first = first * kTreeArity + 1, last = last * kTreeArity + kTreeArity) {
    below.add(RankSet(static_cast<int>(first), static_cast<int>(std::min<std::int64_t>(last + 1, ranks))));
  }
  return below;
}

}  // namespace tutti::internal
