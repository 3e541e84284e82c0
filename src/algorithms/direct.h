// Direct: each member gets a value directly from its owner. One round, n - 1 messages per member; every member starts
// with another peer, so that no peer is overloaded. For few members. All messages are sent at once: pairwise.h has the
// all-to-all in rounds.
//
// Chan, Heimlich, Purkayastha, van de Geijn: Collective communication: theory, practice, and experience,
// Concurrency Comput. 19 (2007), section 5 (cost of direct exchanges as lower bounds).
//
// Cost, where o is the time from one message to the next that a member sends while the first is in flight:
// reduce-scatter alpha + (n-2) o + (n-1)/n B (beta + gamma); all-gather the same without gamma; two-phase all-reduce
// their sum; one-phase all-reduce alpha + (n-2) o + (n-1) B (beta + gamma); broadcast and reduce the same, broadcast
// without gamma; gather, scatter and all-to-all as the all-gather.
#pragma once

#include "algorithms/group.h"

namespace tutti::internal::algorithms {

// Every member sends its whole vector to all others and combines in the order of the members, so that all results are
// the same bit for bit. REQUIRES: c is owed to every member's output.
void direct_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes);
// Reduce-scatter, then all-gather. REQUIRES: c.count is a multiple of g.size().
void direct_two_phase_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes);
// Member i ends with the reduction of parts[i].
void direct_reduce_scatter(Builder& b, const Group& g, const std::vector<Part>& parts, Completes completes);
// Member i starts with parts[i]; all end with all parts.
void direct_all_gather(Builder& b, const Group& g, const std::vector<Part>& parts);
// root is a member's index.
void direct_broadcast(Builder& b, const Group& g, int root, ChunkRange c);
void direct_reduce(Builder& b, const Group& g, int root, ChunkRange c, Completes completes);

// Of all ranks: block r of the vector is rank r's.
void direct_gather(Builder& b);
void direct_scatter(Builder& b);
void direct_all_to_all(Builder& b);

}  // namespace tutti::internal::algorithms
