// The cost model: time of each algorithm in terms of alpha (per message), beta (per byte on a link), gamma
// (per byte combined) and, where a member has many messages under way at once, `message` (from one to the
// next). Hockney: The communication challenge for MPP, Parallel Computing 20 (1994), with gamma as in
// Thakur, Rabenseifner, Gropp 2005, and LogP's gap between messages: Culler et al., LogP: towards a
// realistic model of parallel computation, PPoPP 1993.
//
// Algorithms that know no hosts are charged the slowest link in every round, and where all members of a
// host cross to other hosts at once, they share that link. Combining overlaps nothing. What a link costs is the
// transports' to say.
#pragma once

#include "algorithms/catalog.h"

namespace tutti::internal::algorithms::costs {

// All: microseconds for a vector of `bytes`, all blocks together.
using Cost = double(const World&, double bytes, const Costs&);
// With the parameter of the algorithm.
using ParameterCost = double(const World&, double bytes, const Costs&, int parameter);

Cost ring_reduce_scatter, ring_all_gather, ring_all_reduce;
Cost doubling_all_reduce, doubling_all_gather, bruck_all_gather;
Cost halving_doubling_all_reduce, halving_reduce_scatter;
ParameterCost k_nomial_broadcast, k_nomial_reduce, k_nomial_all_reduce, k_nomial_gather;
Cost ordered_binomial_reduce;
ParameterCost chain_broadcast, chain_reduce, chain_scan, chain_exscan;
Cost ordered_chains_reduce;
Cost double_tree_broadcast, double_tree_reduce, double_tree_all_reduce;
Cost direct_all_reduce, direct_two_phase_all_reduce, direct_reduce_scatter, direct_all_gather;
Cost direct_broadcast, direct_reduce;
Cost direct_gather, direct_all_to_all, pairwise_all_to_all;
Cost bruck_all_to_all;
Cost doubling_scan, doubling_exscan;
Cost hierarchical_all_reduce, hierarchical_doubling_all_reduce;
Cost hierarchical_broadcast, hierarchical_reduce, hierarchical_chain_broadcast, hierarchical_chain_reduce;
Cost hierarchical_reduce_scatter, hierarchical_all_gather;

}  // namespace tutti::internal::algorithms::costs
