// Binomial tree: the members that have the vector double in every round (broadcast), or those that still
// have a partial result halve (reduce). The fewest rounds; the root's link carries the vector log2(n)
// times, so for small vectors.
//
// Thakur, Rabenseifner, Gropp 2005, sections 4.2 and 4.4.
//
// Gather and scatter move the blocks of a subtree in one message; inner members keep them in scratch, as many as the
// subtree has members.
//
// Cost: broadcast ceil(log2 n) (alpha + B beta); reduce ceil(log2 n) (alpha + B beta + B gamma); all-reduce
// their sum; gather and scatter ceil(log2 n) alpha + (n-1)/n B (beta + gamma), gamma for the way through scratch.
#pragma once

#include "algorithms/group.h"

namespace tutti::internal::algorithms {

// root is a member's index.
void binomial_broadcast(Builder& b, const Group& g, int root, ChunkRange c);
void binomial_reduce(Builder& b, const Group& g, int root, ChunkRange c, Completes completes);
// Reduce to member 0 and broadcast from it.
void binomial_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes);

// Of all ranks: block r of the vector is rank r's.
void binomial_gather(Builder& b);
void binomial_scatter(Builder& b);

}  // namespace tutti::internal::algorithms
