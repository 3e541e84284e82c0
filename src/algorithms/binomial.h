// Binomial tree: the members that have the vector double in every round (broadcast), or those that still
// have a partial result halve (reduce). The fewest rounds; the root's link carries the vector log2(n)
// times, so for small vectors.
//
// Thakur, Rabenseifner, Gropp 2005, sections 4.2 and 4.4.
//
// Cost: broadcast ceil(log2 n) (alpha + B beta); reduce ceil(log2 n) (alpha + B beta + B gamma); all-reduce
// their sum.
#pragma once

#include "algorithms/group.h"

namespace tutti::internal::algorithms {

// root is a member's index.
void binomial_broadcast(Builder& b, const Group& g, int root, ChunkRange c);
void binomial_reduce(Builder& b, const Group& g, int root, ChunkRange c, Completes completes);
// Reduce to member 0 and broadcast from it.
void binomial_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes);

}  // namespace tutti::internal::algorithms
