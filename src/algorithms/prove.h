// Proofs of the catalog's algorithms: makes the schedules of all ranks and verifies them. For the tests,
// the command line, and communicators whose ranks and hosts the tests have not proven.
#pragma once

#include <vector>

#include "algorithms/catalog.h"
#include "schedule/verify.h"

namespace tutti::internal::algorithms {

// Every number of ranks up to this one is proven by the tests, with every root; hosts are sampled.
inline constexpr int kProvenRanks = 64;

// Also that it keeps the order of ranks, where the entry says so. The error says which algorithm, how many ranks, which
// hosts and which root. `interrupt`: as in verify().
Result<schedule::Proof> prove(const AlgorithmEntry& entry, const World& world, int root,
                              const schedule::Interrupt& interrupt = {});

// What prove() takes, within a factor of about two, on a processor of 2020 or so. From the schedules of some ranks:
// takes a fraction of the proof. The same on every rank.
struct ProofCost {
  double ms = 0;
  double mib = 0;
};
ProofCost cost_to_prove(const AlgorithmEntry& entry, const World& world, int root);

// One host; all divisions into equal hosts, with ranks in order and dealt round, and these in equal parts, and those
// again; some unequal ones; some drawn by a fixed seed, with parts of parts. Only worlds that the entry serves: what
// does not depend on hosts is not shown any.
std::vector<World> worlds_to_prove(const AlgorithmEntry& entry, int ranks);
// All roots, or with more than kProvenRanks ranks some. {0} for a collective without one.
std::vector<int> roots_to_prove(const AlgorithmEntry& entry, const World& world);
// All numbers up to kProvenRanks, and some beyond (powers of two, their neighbours, primes), up to 1024 for
// an algorithm of few steps, fewer where steps grow with ranks^2 or where there are hosts to divide.
std::vector<int> ranks_to_prove(const AlgorithmEntry& entry);

// Whether the test suite proves exactly this: of each entry that the catalog lists it goes through ranks_to_prove, with
// worlds_to_prove and roots_to_prove of each. Which hosts there are does not matter to an algorithm that serves a
// single one.
[[nodiscard]] bool proven_by_tests(const AlgorithmEntry& entry, const World& world, int root);

}  // namespace tutti::internal::algorithms
