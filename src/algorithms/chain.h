// Chain: the vector runs through all members one after the other. The executor forwards each piece as
// soon as it has arrived, so the chain is a pipeline: every link carries the vector once, all at the same
// time. For large vectors and few members.
//
// Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel
// Computing 35 (2009), section 2 (linear pipeline).
//
// Cost with pieces of P bytes: (n-1) (alpha + P beta) + (B-P) beta; reduce adds gamma to beta.
#pragma once

#include "algorithms/group.h"

namespace tutti::internal::algorithms {

// From member root to root + 1, ..., and so on round. root is a member's index.
void chain_broadcast(Builder& b, const Group& g, int root, ChunkRange c);
// The same way backwards.
void chain_reduce(Builder& b, const Group& g, int root, ChunkRange c, Completes completes);

}  // namespace tutti::internal::algorithms
