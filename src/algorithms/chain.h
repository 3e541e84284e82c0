// Chain: the vector runs through all members one after the other, in as many pieces as the schedule cuts it into. The
// executor forwards a long piece byte by byte as it arrives, so that one piece is a pipeline already: every link
// carries the vector once, all at the same time. A short piece is forwarded when it has arrived as a whole. For large
// vectors and few members.
//
// Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel
// Computing 35 (2009), section 2 (linear pipeline).
//
// Cost with pieces of P bytes: (n-1) (alpha + P beta) + (B-P) beta; reduce adds gamma to beta. With k pieces P is at
// most B / k, and each further piece costs a message.
#pragma once

#include "algorithms/group.h"

namespace tutti::internal::algorithms {

inline constexpr int kMostPieces = 1024;

// From member root to root + 1, ..., and so on round. root is a member's index. REQUIRES: c.count is a multiple of
// pieces.
void chain_broadcast(Builder& b, const Group& g, int root, ChunkRange c, int pieces = 1);
// The same way backwards.
void chain_reduce(Builder& b, const Group& g, int root, ChunkRange c, int pieces, Completes completes);

}  // namespace tutti::internal::algorithms
