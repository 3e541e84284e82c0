// Proofs of the catalog's algorithms: makes the schedules of all ranks and verifies them. For the tests,
// the command line, and communicators whose number of ranks was never proven before.
#pragma once

#include <vector>

#include "algorithms/catalog.h"
#include "schedule/verify.h"

namespace tutti::algorithms {

// Every number of ranks up to this one is proven by the tests, with every root.
inline constexpr int kProvenRanks = 64;

// The error says which algorithm, how many ranks, which hosts and which root.
Result<schedule::Proof> prove(const AlgorithmEntry& entry, const World& world, int root);

// One host; all divisions into equal hosts, with ranks in order and dealt round; some unequal ones; two
// drawn by a fixed seed. Only worlds that the entry serves: the flat algorithms are not shown hosts.
std::vector<World> worlds_to_prove(const AlgorithmEntry& entry, int ranks);
// All roots, or with more than kProvenRanks ranks some. {0} for a collective without one.
std::vector<int> roots_to_prove(const AlgorithmEntry& entry, const World& world);
// Some numbers beyond kProvenRanks, up to and including most: powers of two, their neighbours, primes.
std::vector<int> large_ranks_to_prove(int most);

}  // namespace tutti::algorithms
