// K-nomial tree of radix k: in every round each member that has the vector sends it to k - 1 others (broadcast), or
// combines those of k - 1 others with its own (reduce). With k = 2 it is the binomial tree: the fewest messages of any
// member. A larger radix has fewer rounds one after the other and more messages in each, up to k = n, where all is sent
// directly. The root's link carries the vector once for each of its children, so it is for small vectors. More children
// pay if messages in flight overlap.
//
// Members are numbered from the root, and their numbers written with base k: the parent's number is that without the
// lowest digit that is not 0.
//
// Thakur, Rabenseifner, Gropp 2005, sections 4.2 and 4.4 (k = 2); Wilkins, Wang, Liu, Pham, Guo, Thakur, Hardavellas,
// Dinda: Generalized collective algorithms for the exascale era, IEEE CLUSTER 2023 (any k).
//
// Gather and scatter move the blocks of a subtree in one message; inner members keep them in scratch, as many as the
// subtree has members.
//
// Cost, with c children of the root, about (k-1) log_k n: broadcast c (alpha + B beta); reduce c (alpha + B beta + B
// gamma); all-reduce their sum; gather and scatter c alpha + (n-1)/n B (beta + gamma), gamma for the way through
// scratch.
#pragma once

#include "algorithms/group.h"

namespace tutti::internal::algorithms {

// All: kLeastRadix <= radix <= kMostRadix. root is a member's index.
inline constexpr int kLeastRadix = 2;
inline constexpr int kMostRadix = 1 << 20;  // as many as ranks can be

void k_nomial_broadcast(Builder& b, const Group& g, int root, ChunkRange c, int radix);
// Combines in the order of the members from the root on.
void k_nomial_reduce(Builder& b, const Group& g, int root, ChunkRange c, int radix, Completes completes);
// Reduce to member 0 and broadcast from it.
void k_nomial_all_reduce(Builder& b, const Group& g, ChunkRange c, int radix, Completes completes);

// Of all ranks: block r of the vector is rank r's.
void k_nomial_gather(Builder& b, int radix);
void k_nomial_scatter(Builder& b, int radix);

}  // namespace tutti::internal::algorithms
