// Ring: every member communicates only with its two neighbours. In each of n - 1 rounds a part moves one place to the
// right and gathers one contribution (reduce-scatter) or is kept (all-gather). Moves the least bytes that any algorithm
// can, and no link carries more than another; many rounds, so for large vectors. Any n: there is a part for each
// member.
//
// Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, J. Parallel
// Distrib. Comput. 69 (2009), section 3.
//
// Cost for B bytes in all: reduce-scatter (n-1) (alpha + B/n beta + B/n gamma); all-gather the same
// without gamma; all-reduce their sum.
#pragma once

#include "algorithms/group.h"
#include "algorithms/hosts.h"

namespace tutti::internal::algorithms {

// Member i ends with the reduction of parts[i].
void ring_reduce_scatter(Builder& b, const Group& g, const std::vector<Part>& parts, Completes completes);
// Member i starts with parts[i]; all end with all parts.
void ring_all_gather(Builder& b, const Group& g, const std::vector<Part>& parts);
// REQUIRES: c.count is a multiple of g.size().
void ring_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes);

// For all ranks: `channels` parallel rings, each for its share of the vector. All go from host to host, but enter and
// leave each host at different members, which may have different network ports, like NCCL's channels. REQUIRES:
// hosts.check(), and there are some; c.count is a multiple of the ranks times the channels.
void channel_rings_all_reduce(Builder& b, const Hosts& hosts, int channels, ChunkRange c, Completes completes);
// Part r of c belongs to rank r.
void channel_rings_reduce_scatter(Builder& b, const Hosts& hosts, int channels, ChunkRange c, Completes completes);
void channel_rings_all_gather(Builder& b, const Hosts& hosts, int channels, ChunkRange c);

}  // namespace tutti::internal::algorithms
