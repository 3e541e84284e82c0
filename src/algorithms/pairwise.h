// Pairwise exchange: an all-to-all in n - 1 rounds. In round k member r sends its block to r + k and receives that of
// r - k, and goes on when it has it: every member has one message each way under way, and every receiver one sender.
// Sent all at once, the n (n - 1) messages of large jobs fill the buffers of the network and collide at its ports; here
// a round costs one latency instead. For large blocks and many members. The simulator, by which it is selected, knows
// no collisions. (In slices, up to four rounds overlap.)
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
