// Pairwise exchange: an all-to-all in n - 1 rounds. In round k member r sends its block to r + k and receives the block
// of r - k, and continues when it has received it: every member has one message in flight each way, and every receiver
// has one sender. If all n (n - 1) messages of a large job are sent at once, they fill the buffers of the network and
// collide at its ports; here each round costs one latency instead. For large blocks and many members. The simulator,
// which selection uses, does not model collisions. (In slices, up to four rounds overlap.)
//
// Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, Int. J. High Perform.
// Comput. Appl. 19 (2005), section 4 (all-to-all, long messages).
//
// Cost: (n-1) alpha + (n-1)/n B beta.
#pragma once

#include "algorithms/group.h"

namespace tutti::internal::algorithms {

// Of all ranks: block r of the vector is for rank r.
void pairwise_all_to_all(Builder& b);

}  // namespace tutti::internal::algorithms
