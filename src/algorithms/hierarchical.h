// Hierarchical: moves as little data as possible between hosts, sockets and sites. If groups have the same number of
// members, member j of every innermost group handles share j: reduce-scatter inside the group, the same collective
// between the members j of all groups, level by level, all-gather inside the group. All members of a host use its
// network at the same time, each with its own port. Otherwise one leader per group acts for the others.
//
// Chan, van de Geijn, Gropp, Thakur: Collective communication on architectures that support simultaneous
// communication over multiple links, PPoPP 2006; Traeff, Rougier: MPI collectives and datatypes for
// hierarchical all-to-all communication, EuroMPI 2014 (decomposition by nodes and lanes).
//
// Cost: the sum of the parts, each with its own link's alpha and beta.
#pragma once

#include "algorithms/group.h"
#include "algorithms/hierarchy.h"

namespace tutti::internal::algorithms {

// All of them: REQUIRES hierarchy.check() and not empty().
// For large vectors. REQUIRES: c.count is a multiple of the number of the outermost groups, and of the number of ranks
// where the groups of each division are equal.
void hierarchical_all_reduce(Builder& b, const Hierarchy& hierarchy, ChunkRange c, Completes completes);
// For small vectors, any sizes: binomial reduce to a leader, recursive doubling, binomial broadcast.
void hierarchical_doubling_all_reduce(Builder& b, const Hierarchy& hierarchy, ChunkRange c, Completes completes);

enum class Tree { kBinomial, kChain };
// root is a rank. First between one member of each outermost group (the root for its own), then at the inner levels, or
// the reverse.
void hierarchical_broadcast(Builder& b, const Hierarchy& hierarchy, Tree tree, int root, ChunkRange c);
void hierarchical_reduce(Builder& b, const Hierarchy& hierarchy, Tree tree, int root, ChunkRange c,
                         Completes completes);

// Part r of c belongs to rank r. REQUIRES: hierarchy.are_equal(); c.count is a multiple of the number of ranks.
void hierarchical_reduce_scatter(Builder& b, const Hierarchy& hierarchy, ChunkRange c, Completes completes);
void hierarchical_all_gather(Builder& b, const Hierarchy& hierarchy, ChunkRange c);

}  // namespace tutti::internal::algorithms
