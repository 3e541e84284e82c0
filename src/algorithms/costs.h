// The cost model: time of each algorithm in terms of alpha (per message), beta (per byte on a link), gamma
// (per byte combined) and, where a member has many messages under way at once, `message` (from one to the
// next). Hockney: The communication challenge for MPP, Parallel Computing 20 (1994), with gamma as in
// Thakur, Rabenseifner, Gropp 2005, and LogP's gap between messages: Culler et al., LogP: towards a
// realistic model of parallel computation, PPoPP 1993.
//
// Algorithms that know no hosts are charged the slowest link in every round, and where all members of a
// host cross to other hosts at once, they share that link. Combining overlaps nothing. What a link costs is the
// transports' to say.
//
// Where n ranks that share memory have n/r processors, these do their work in turns. P processors that are never idle
// while there is work take no longer than the longest path takes, and what is left of the work W of all takes divided
// by P (Graham: Bounds for certain multiprocessing anomalies, Bell System Tech. J. 45 (1966); Brent: The parallel
// evaluation of general arithmetic expressions, J. ACM 21 (1974)). With the mean rank's share of it on the path itself
// that is path + (r - 1) W/n. Where all ranks do the same, the path is W/n, and all costs count r times: so the links
// publish them. Those of messages count so only where the link says that they do (LinkCosts::messages_in_turns): a
// message that finds its receiver running takes no less because another processor has one rank more. One-way algorithms
// (broadcast, reduce, scans), in which some ranks do less, are charged the path and the rest apart. On their path no
// rank waits for one of its own processor: what that has sent is there when the turn comes. So hops count as if each
// processor had one rank; and of scans, whose chain goes from each rank to the next, the bytes too. Four and eight
// ranks on two processors, scan of 1 to 64 KiB: the chain, which does least work, takes 0.45 to 0.8 of the time of
// recursive doubling; broadcast of 1 KiB down a tree 0.4 to 0.6 of that to all at once. Gathers and scatters are not
// charged so: the root does half of all work.
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
