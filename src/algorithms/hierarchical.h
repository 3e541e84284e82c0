// Hierarchical: as little as possible crosses from host to host. Where hosts have equally many members,
// member j of every host looks after share j: reduce-scatter inside the host, the same collective between
// the members j of all hosts, all-gather inside the host. All of a host's members use its network at once.
// Otherwise one leader per host acts for the rest.
//
// Chan, van de Geijn, Gropp, Thakur: Collective communication on architectures that support simultaneous
// communication over multiple links, PPoPP 2006; Traeff, Rougier: MPI collectives and datatypes for
// hierarchical all-to-all communication, EuroMPI 2014 (decomposition by nodes and lanes).
//
// Cost: the sum of the parts, each with its own link's alpha and beta.
#pragma once

#include "algorithms/group.h"
#include "algorithms/hosts.h"

namespace tutti::internal::algorithms {

// All of them: REQUIRES hosts.check().
// For large vectors. REQUIRES: c.count is a multiple of hosts.size(), and of hosts.size() times the size
// of a host where these are equal.
void hierarchical_all_reduce(Builder& b, const Hosts& hosts, ChunkRange c, Completes completes);
// For small vectors, any sizes: binomial reduce to a leader, recursive doubling, binomial broadcast.
void hierarchical_doubling_all_reduce(Builder& b, const Hosts& hosts, ChunkRange c, Completes completes);

enum class Tree { kBinomial, kChain };
// root is a rank. Between one member of each host (the root for its own) and then inside the hosts, or
// the other way round.
void hierarchical_broadcast(Builder& b, const Hosts& hosts, Tree tree, int root, ChunkRange c);
void hierarchical_reduce(Builder& b, const Hosts& hosts, Tree tree, int root, ChunkRange c, Completes completes);

// Part r of c belongs to rank r. REQUIRES: hosts.are_equal(); c.count is a multiple of the number of ranks.
void hierarchical_reduce_scatter(Builder& b, const Hosts& hosts, ChunkRange c, Completes completes);
void hierarchical_all_gather(Builder& b, const Hosts& hosts, ChunkRange c);

}  // namespace tutti::internal::algorithms
