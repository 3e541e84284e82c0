// Proofs of algorithms: makes the schedules of all ranks and verifies them. For the tests, the command line, and
// communicators whose ranks and hosts the tests have not proven.
#pragma once

#include <vector>

#include "algorithms/catalog.h"
#include "schedule/verify.h"

namespace tutti::internal::algorithms {

// The tests prove every number of ranks up to this one, with every root; hosts are sampled.
inline constexpr int kProvenRanks = 64;

// Also proves that it keeps the order of ranks, if the entry says so. The error has the algorithm, the number of ranks,
// the hosts and the root. `interrupt`: as in verify().
Result<schedule::Proof> prove(const AlgorithmEntry& entry, const World& world, int root,
                              const schedule::Interrupt& interrupt = {});

// The estimated cost of prove(), within a factor of about two, on a processor of about 2020. Estimated from the
// schedules of some ranks, in a fraction of the time of the proof. The same on every rank.
struct ProofCost {
  double ms = 0;
  double mib = 0;
};
ProofCost cost_to_prove(const AlgorithmEntry& entry, const World& world, int root);

// One host; all divisions into equal hosts, with ranks in order and round-robin, these in equal parts, and those again;
// some unequal ones; some random ones from a fixed seed, with parts of parts. Only worlds that the entry supports;
// without hosts if it does not depend on them.
std::vector<World> worlds_to_prove(const AlgorithmEntry& entry, int ranks);
// All roots, or with more than kProvenRanks ranks some. {0} for a collective without one.
std::vector<int> roots_to_prove(const AlgorithmEntry& entry, const World& world);
// All numbers up to kProvenRanks, and some beyond (powers of two, their neighbours, primes), up to 1024 for an
// algorithm of few steps, fewer if steps grow with ranks^2 or if it uses hosts.
std::vector<int> ranks_to_prove(const AlgorithmEntry& entry);

// Whether the test suite proves exactly this case: for each entry of the catalog it goes through ranks_to_prove, with
// worlds_to_prove and roots_to_prove of each. The hosts do not matter for an algorithm that does not depend on them.
[[nodiscard]] bool proven_by_tests(const AlgorithmEntry& entry, const World& world, int root);

}  // namespace tutti::internal::algorithms
