// Proves every algorithm of the catalog: exhaustively up to kProvenRanks ranks with every root and many
// divisions into hosts, and for sampled larger numbers.
#include <cstdio>

#include "algorithms/prove.h"
#include "catch_compat.h"

namespace tutti::algorithms {
namespace {

std::size_t prove_all(const AlgorithmEntry& entry, int ranks) {
  std::size_t proofs = 0;
  for (const World& world : worlds_to_prove(entry, ranks)) {
    for (const int root : roots_to_prove(entry, world)) {
      const Result<schedule::Proof> proof = prove(entry, world, root);
      if (!proof.is_ok()) FAIL(proof.status().message());
      ++proofs;
    }
  }
  return proofs;
}

// Algorithms that move some chunk of every rank's block to every rank: ranks^2 steps in all, or more.
bool is_quadratic(const AlgorithmEntry& entry) {
  const schedule::Schedule first = make_schedule(entry, World{64, {}}, 0, 0).value();
  return first.steps.size() >= 60;
}

TEST_CASE("every algorithm is correct for every number of ranks up to 64, every root, many hosts") {
  for (const AlgorithmEntry& entry : catalog()) {
    std::size_t proofs = 0;
    for (int ranks = 1; ranks <= kProvenRanks; ++ranks) proofs += prove_all(entry, ranks);
    INFO(name_of(entry.collective) << " " << entry.name);
    CHECK(proofs >= 61);  // hierarchical ones need some ranks to be served at all
  }
}

TEST_CASE("every algorithm is correct for sampled numbers of ranks up to 1024") {
  for (const AlgorithmEntry& entry : catalog()) {
    const bool flat = entry.supports(World{64, {}});
    // Hosts multiply the worlds, direct and ring algorithms the steps: their samples are smaller.
    const int most = !flat ? 257 : is_quadratic(entry) ? 513 : 1024;
    std::size_t proofs = 0;
    for (const int ranks : large_ranks_to_prove(most)) proofs += prove_all(entry, ranks);
    INFO(name_of(entry.collective) << " " << entry.name);
    CHECK(proofs >= 10);
  }
  // The costliest shape at the largest number, once.
  CHECK(prove_all(*find(Collective::kAllReduce, "ring"), 1024) == 1);
}

TEST_CASE("the catalog refuses what it cannot serve") {
  const AlgorithmEntry& ring = *find(Collective::kAllReduce, "ring");
  const AlgorithmEntry& hosts = *find(Collective::kAllReduce, "hierarchical");
  CHECK(find(Collective::kAllReduce, "nothing") == nullptr);
  CHECK(make_schedule(ring, World{4, {}}, 4, 0).status().code() == Code::kInvalidArgument);
  CHECK(make_schedule(ring, World{4, {}}, 0, -1).status().code() == Code::kInvalidArgument);
  CHECK(make_schedule(ring, World{0, {}}, 0, 0).status().code() == Code::kInvalidArgument);
  CHECK(make_schedule(hosts, World{4, {}}, 0, 0).status().code() == Code::kInvalidArgument);
  CHECK(make_schedule(hosts, World{4, {{0, 1}, {2}}}, 0, 0).status().code() == Code::kInvalidArgument);
  CHECK(make_schedule(hosts, World{4, {{0, 1}, {1, 2, 3}}}, 0, 0).status().code() == Code::kInvalidArgument);
  CHECK(make_schedule(hosts, World{4, {{0, 1}, {2, 3}}}, 0, 0).is_ok());
}

}  // namespace
}  // namespace tutti::algorithms
