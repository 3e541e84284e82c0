// Double binary tree: half of the vector flows through one binary tree, half through another, in which
// the inner members of the first are leaves. So every member sends and receives about the vector once,
// and the depth is logarithmic: for large vectors and many members.
//
// Both trees contain all members except the root, which is above both. In the first, member x (numbered 1 .. m from the
// root) sits in symmetric order of a complete binary tree: odd ones are leaves. The second is its mirror image for even
// m, and the first shifted by one for odd m, which makes the even ones leaves.
//
// Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel
// Computing 35 (2009), section 3.
//
// Cost with pieces of P bytes: broadcast about 2 log2(n) (alpha + P beta) + B beta; reduce adds gamma to
// beta; all-reduce their sum.
#pragma once

#include "algorithms/group.h"

namespace tutti::internal::algorithms {

// root is a member's index. REQUIRES: c.count is even.
void double_tree_broadcast(Builder& b, const Group& g, int root, ChunkRange c);
void double_tree_reduce(Builder& b, const Group& g, int root, ChunkRange c, Completes completes);
// Reduce to member 0 and broadcast from it.
void double_tree_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes);

}  // namespace tutti::internal::algorithms
