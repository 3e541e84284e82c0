// Bruck's all-to-all: log2(n) messages instead of n - 1. Member r keeps the block for member r + k at place k; in the
// round of bit 2^j all places with that bit are sent on to member r + 2^j, in one message, so that a block has
// travelled k when the last bit of k is done. Every block is moved as often as k has bits: for small blocks and many
// members.
//
// Nothing is rotated: the blocks of a round are packed from their present positions (the input or an earlier round's
// message), and each goes into the output after its last round.
//
// Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all communications in multiport
// message-passing systems, IEEE Trans. Parallel Distrib. Syst. 8 (1997), section 3 (index).
//
// Cost, if packing and unpacking take gamma for a byte: ceil(log2 n) (alpha + B/2 (beta + gamma)).
#pragma once

#include "algorithms/group.h"

namespace tutti::internal::algorithms {

// Of all ranks: block r of the vector is for rank r. REQUIRES: a block is one chunk.
void bruck_all_to_all(Builder& b);

}  // namespace tutti::internal::algorithms
