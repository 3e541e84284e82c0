// Reductions in the order of ranks, for operators that do not commute. Other algorithms combine in another order: they
// rotate the ranks to begin after the root or the own rank. Here the root only decides which of two neighbouring groups
// sends its value to the other.
//
// Binomial: groups of 2^k consecutive members join their neighbours, represented by their first member or, in the
// root's group, by the root. Chains: one from each end of the group to the root, piece by piece. Direct: member i
// combines its part with those of i - 1, i - 2, ..., 0 and then of i + 1, i + 2, ..., n - 1. Two phases: direct, then
// all members send each other their parts.
//
// Cost for B bytes in all: as k_nomial.h with k = 2, direct.h (reduce-scatter; all-reduce in two phases); the chains as
// chain.h, except that a root in the middle receives the vector twice: (n-1) (alpha + P (beta + gamma)) + (2B-P) (beta
// + gamma).
#pragma once

#include "algorithms/group.h"

namespace tutti::internal::algorithms {

// All: the group's members are in the order in which they are to be combined. root is a member's index.
void ordered_binomial_reduce(Builder& b, const Group& g, int root, ChunkRange c, Completes completes);
void ordered_chains_reduce(Builder& b, const Group& g, int root, ChunkRange c, Completes completes);
// Member i ends with the reduction of part i. REQUIRES: one part for each member.
void ordered_direct_reduce_scatter(Builder& b, const Group& g, const std::vector<Part>& parts, Completes completes);
// REQUIRES: c.count is a multiple of g.size().
void ordered_two_phase_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes);

}  // namespace tutti::internal::algorithms
