// Proves every algorithm of the catalog: exhaustively up to kProvenRanks ranks with every root and many
// divisions into hosts, and for sampled larger numbers. Communicators rely on this list of proofs.
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
      REQUIRE(proven_by_tests(entry, world, root));
      ++proofs;
    }
  }
  return proofs;
}

TEST_CASE("every algorithm is correct: every number of ranks up to 64, some to 1024, every root, many hosts") {
  for (const AlgorithmEntry& entry : catalog()) {
    std::size_t small = 0;
    std::size_t large = 0;
    for (const int ranks : ranks_to_prove(entry)) (ranks <= kProvenRanks ? small : large) += prove_all(entry, ranks);
    INFO(name_of(entry.collective) << " " << entry.name);
    CHECK(small >= 61);  // hierarchical ones need some ranks to be served at all
    CHECK(large >= 10);
  }
}

TEST_CASE("what is not among the proven is known as such") {
  const AlgorithmEntry& ring = *find(Collective::kAllReduce, "ring");
  const AlgorithmEntry& tree = *find(Collective::kBroadcast, "binomial");
  const AlgorithmEntry& hosts = *find(Collective::kAllReduce, "hierarchical");
  for (int n = 1; n <= kProvenRanks; ++n) {
    CHECK(proven_by_tests(ring, World{n, {}}, 0));
    CHECK(proven_by_tests(tree, World{n, {}}, n - 1));
  }
  CHECK_FALSE(proven_by_tests(ring, World{66, {}}, 0));
  CHECK_FALSE(proven_by_tests(ring, World{1021, {}}, 0));
  CHECK(proven_by_tests(ring, World{1024, {}}, 0));
  CHECK_FALSE(proven_by_tests(ring, World{1025, {}}, 0));
  CHECK(proven_by_tests(tree, World{1021, {}}, 1020));
  CHECK_FALSE(proven_by_tests(tree, World{1021, {}}, 3));
  CHECK(proven_by_tests(ring, World{4, {{0, 3}, {1, 2}}}, 0));
  CHECK(proven_by_tests(hosts, World{4, {{0, 2}, {1, 3}}}, 0));
  CHECK_FALSE(proven_by_tests(hosts, World{6, {{0, 1, 5}, {2, 3, 4}}}, 0));
}

TEST_CASE("an algorithm that serves a single host writes the same for any hosts") {
  for (const AlgorithmEntry& entry : catalog()) {
    if (!entry.supports(World{12, {}})) continue;
    INFO(name_of(entry.collective) << " " << entry.name);
    const World divided{12, {{0, 2, 4, 6, 8}, {1, 3, 5}, {7, 9, 10, 11}}};
    for (int r = 0; r < 12; ++r) {
      const auto alone = make_schedule(entry, World{12, {}}, r, 5);
      const auto apart = make_schedule(entry, divided, r, 5);
      REQUIRE((alone.is_ok() && apart.is_ok()));
      CHECK(to_text(alone.value()) == to_text(apart.value()));
    }
  }
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
