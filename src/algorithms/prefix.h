// Scans: member r gets the combination of the vectors of members 0 to r (scan), or 0 to r - 1 (exclusive scan),
// combined in the order of the members.
//
// Recursive doubling: in round k a member sends the combination of the last 2^k members up to itself to member r + 2^k,
// so log2(n) rounds suffice. Hillis, Steele: Data parallel algorithms, Commun. ACM 29 (1986).
//
// Chain: a member combines the vector from member r - 1 with its own and sends it on, piece by piece: a pipeline in
// which every link carries the vector once. Sanders, Traeff: Parallel prefix (scan) algorithms for MPI, EuroPVM/MPI
// 2006.
//
// Cost: recursive doubling ceil(log2 n) (alpha + B (beta + gamma)); chain (n-1) (alpha + P (beta + gamma)) + (B-P)
// (beta + gamma) with pieces of P bytes. The exclusive scan combines a received vector twice, or copies it.
#pragma once

#include "algorithms/group.h"

namespace tutti::internal::algorithms {

// Of all ranks, the whole vector. A chain forwards it chunk by chunk.
void doubling_scan(Builder& b);
void chain_scan(Builder& b);
void doubling_exscan(Builder& b);
void chain_exscan(Builder& b);

}  // namespace tutti::internal::algorithms
