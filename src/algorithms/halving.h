// Recursive halving and doubling. Halving: members at distance p/2, p/4, ..., 1 exchange the half of the vector that
// the other side keeps, and combine; each ends with its part. Doubling is the reverse, to gather. Few rounds and few
// bytes: for medium and large vectors. Any n by folding (fold.h): if a member represents two members, its part includes
// both parts.
//
// Rabenseifner: Optimization of collective reduction operations, ICCS 2004, section 3 (all-reduce);
// Thakur, Rabenseifner, Gropp 2005, sections 4.1 (all-gather) and 4.3 (reduce-scatter).
//
// Cost for B bytes in all, n a power of two: reduce-scatter log2(n) alpha + (n-1)/n B (beta + gamma); all-gather the
// same without gamma; all-reduce their sum. Otherwise with p for n, and alpha + B beta + B gamma for the fold and
// alpha + B beta (reduce-scatter: alpha + B/n beta) for the way back; all-gather alpha + B/n beta for the fold.
#pragma once

#include "algorithms/group.h"

namespace tutti::internal::algorithms {

// REQUIRES: c.count is a multiple of power_of_two_below(g.size()).
void halving_doubling_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes);
// Member i ends with the reduction of part i of g.size(). REQUIRES: c.count is a multiple of g.size().
void halving_reduce_scatter(Builder& b, const Group& g, ChunkRange c, Completes completes);
// Member i starts with part i of g.size(); all end with all. The parts of a member are contiguous, so that every round
// is one message each way. REQUIRES: c.count is a multiple of g.size().
void doubling_all_gather(Builder& b, const Group& g, ChunkRange c);

}  // namespace tutti::internal::algorithms
