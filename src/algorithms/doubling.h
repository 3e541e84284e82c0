// Recursive doubling: in round k members at distance 2^k exchange everything that they have, so log2(n) rounds suffice.
// Fewest rounds, most bytes: for small vectors.
//
// Members beyond the largest power of two p fold: the odd one of a pair gives its vector to the even one
// before the rounds and gets the result after them.
//
// Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, Int. J. High
// Perform. Comput. Appl. 19 (2005), sections 4.1 and 4.5 (recursive doubling). Bruck, Ho, Kipnis, Upfal,
// Weathersby: Efficient algorithms for all-to-all communications in multiport message-passing systems,
// IEEE Trans. Parallel Distrib. Syst. 8 (1997), section 4 (concatenation).
//
// Cost for B bytes in all: all-reduce log2(p) (alpha + B beta + B gamma), plus 2 alpha + 2 B beta + B gamma
// if n != p; all-gather (Bruck) ceil(log2 n) alpha + (n-1)/n B beta.
#pragma once

#include "algorithms/group.h"

namespace tutti::internal::algorithms {

// If two members exchange the same chunks, both cannot combine into memory that the other still reads, without
// buffering. So the lower one receives into scratch, which needs no buffering. REQUIRES: c is owed to every member's
// output.
void doubling_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes);

// Member i starts with part i of g.size(); all end with all parts. Any group size: in round k member i gets from member
// i + 2^k the parts that it has gathered so far. Chunks have numbers, so nothing is rotated at the end or padded; parts
// that wrap around are two messages. REQUIRES: c.count is a multiple of g.size().
void bruck_all_gather(Builder& b, const Group& g, ChunkRange c);

}  // namespace tutti::internal::algorithms
