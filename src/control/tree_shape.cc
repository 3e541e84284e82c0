#include "control/tree_shape.h"

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

}  // namespace tutti::internal
