// The shape of a job's control tree.
#pragma once

#include <vector>

#include "control/rank_set.h"

namespace tutti::internal {

inline constexpr int kTreeArity = 4;
inline constexpr int kMaxRanks = 1 << 20;

// The tree has the shape of a heap with kTreeArity children per rank: rank 0 is the root.
inline int tree_parent(int rank) {
  return (rank - 1) / kTreeArity;
}  // REQUIRES: rank > 0
std::vector<int> tree_children(int rank, int ranks);
// The rank and all below it.
RankSet tree_below(int rank, int ranks);

}  // namespace tutti::internal
