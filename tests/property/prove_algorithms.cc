// Proves every algorithm of the catalog: exhaustively up to kProvenRanks ranks with every root and many
// divisions into hosts, and for sampled larger numbers. Communicators rely on this list of proofs.
#include <algorithm>
#include <cstdio>

#include "algorithms/prove.h"
#include "catch_compat.h"

namespace tutti::internal::algorithms {
namespace {

std::size_t prove_all(const AlgorithmEntry& entry, int ranks) {
  std::size_t proofs = 0;
  for (const World& world : worlds_to_prove(entry, ranks)) {
    const std::vector<int> roots = roots_to_prove(entry, world);
    for (const int root : roots) {
      const Result<schedule::Proof> proof = prove(entry, world, root);
      if (!proof.is_ok()) FAIL(proof.status().message());
      ++proofs;
    }
    // It looks for the root among the same roots, and for the world among all worlds, which takes longer.
    for (const int root : {roots.front(), roots.back()}) REQUIRE(proven_by_tests(entry, world, root));
  }
  return proofs;
}

// Every algorithm is in one of two halves, which run in parallel: every second one, because neighbours are similar.
void prove_half(std::size_t half) {
  for (std::size_t i = half; i < catalog().size(); i += 2) {
    const AlgorithmEntry& entry = catalog()[i];
    std::size_t small = 0;
    std::size_t large = 0;
    for (const int ranks : ranks_to_prove(entry)) (ranks <= kProvenRanks ? small : large) += prove_all(entry, ranks);
    INFO(name_of(entry.collective) << " " << entry.name);
    CHECK(small >= 61);  // hierarchical ones support only some divisions
    CHECK(large >= 10);
  }
}

TEST_CASE("every algorithm is correct: every number of ranks up to 64, some to 1024, every root, many hosts",
          "[half]") {
  prove_half(0);
}

TEST_CASE("every algorithm is correct, the other half", "[other_half]") {
  prove_half(1);
}

// The catalog lists three radices; communicators prove the others themselves.
TEST_CASE("trees of other radices are correct as well") {
  for (const Collective collective : {Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce,
                                      Collective::kGather, Collective::kScatter, Collective::kBarrier}) {
    for (const char* name : {"k_nomial:3", "k_nomial:5", "k_nomial:7", "k_nomial:16", "k_nomial:1048576"}) {
      const AlgorithmEntry& entry = *find(collective, name);
      for (const int ranks : {1, 2, 3, 4, 5, 8, 9, 10, 24, 25, 26, 27, 28, 49, 64, 257}) {
        for (const int root : {0, ranks / 2, ranks - 1}) {
          const Result<schedule::Proof> proof = prove(entry, World{ranks, {}}, has_root(collective) ? root : 0);
          if (!proof.is_ok()) FAIL(proof.status().message());
        }
      }
    }
  }
}

TEST_CASE("chains of several pieces are correct as well") {
  for (const Collective collective :
       {Collective::kBroadcast, Collective::kReduce, Collective::kScan, Collective::kExscan}) {
    for (const char* name : {"chain:2", "chain:3", "chain:8", "chain:1024"}) {
      const AlgorithmEntry& entry = *find(collective, name);
      for (const int ranks : {1, 2, 3, 4, 5, 8, 9, 33}) {
        for (const int root : {0, ranks / 2, ranks - 1}) {
          const Result<schedule::Proof> proof = prove(entry, World{ranks, {}}, has_root(collective) ? root : 0);
          if (!proof.is_ok()) FAIL(proof.status().message());
        }
      }
    }
  }
}

TEST_CASE("a proof can be ended at any point, and checks often enough whether to end") {
  for (const char* name : {"ring", "double_tree", "direct", "hierarchical"}) {
    const AlgorithmEntry& entry = *find(Collective::kAllReduce, name);
    const World world = worlds_to_prove(entry, 96).front();
    std::size_t asked = 0;
    const Result<schedule::Proof> whole = prove(entry, world, 0, [&] { return ++asked, Status(); });
    REQUIRE(whole.is_ok());
    INFO(name << " is asked " << asked << " times");
    // Of each transfer both sides are steps, and both are checked several times.
    CHECK(asked >= 96 + (whole.value().accesses + whole.value().transfers) / 10'000);
    for (std::size_t end = 1; end <= asked; end += 1 + asked / 40) {
      std::size_t times = 0;
      const auto interrupt = [&] { return ++times == end ? Status::aborted("enough") : Status(); };
      const Result<schedule::Proof> part = prove(entry, world, 0, interrupt);
      CHECK(part.status().code() == Code::kAborted);
      CHECK(times == end);
    }
  }
}

// The estimate decides what a communicator proves. It must follow the work and the memory.
TEST_CASE("the cost of a proof is known in advance") {
  const auto cost = [](Collective collective, const char* name, int ranks) {
    return cost_to_prove(*find(collective, name), World{ranks, {}}, 0);
  };
  for (const int ranks : {65, 200, 500}) {
    const AlgorithmEntry& ring = *find(Collective::kAllReduce, "ring");
    const Result<schedule::Proof> proof = prove(ring, World{ranks, {}}, 0);
    REQUIRE(proof.is_ok());
    const double work = static_cast<double>(proof.value().transfers);
    const double share = cost(Collective::kAllReduce, "ring", ranks).ms / work;
    CHECK(share > 0.0004);
    CHECK(share < 0.0008);
  }
  const ProofCost ring = cost(Collective::kAllReduce, "ring", 2000);
  const ProofCost half = cost(Collective::kAllReduce, "ring", 1000);
  const ProofCost tree = cost(Collective::kAllReduce, "double_tree", 2000);
  CHECK(ring.ms > 3.5 * half.ms);
  CHECK(ring.mib > 3.5 * half.mib);
  CHECK(tree.ms < ring.ms / 5);
  CHECK(tree.mib < ring.mib / 3);
}

TEST_CASE("schedules that the tests have not proven are recognised") {
  const AlgorithmEntry& ring = *find(Collective::kAllReduce, "ring");
  const AlgorithmEntry& tree = *find(Collective::kBroadcast, "k_nomial:2");
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
  CHECK_FALSE(proven_by_tests(*find(Collective::kBroadcast, "k_nomial:3"), World{4, {}}, 0));
  CHECK(proven_by_tests(ring, World{4, {{0, 3}, {1, 2}}}, 0));
  CHECK(proven_by_tests(hosts, World{4, {{0, 2}, {1, 3}}}, 0));
  CHECK_FALSE(proven_by_tests(hosts, World{6, {{0, 1, 5}, {2, 3, 4}}}, 0));
}

// Whether its schedules for this world combine in the order of ranks, for every root.
bool found_in_order(const AlgorithmEntry& entry, const World& world) {
  for (const int root : roots_to_prove(entry, world)) {
    std::vector<schedule::Schedule> schedules;
    for (int r = 0; r < world.ranks; ++r) schedules.push_back(make_schedule(entry, world, r, root).value());
    if (!schedule::verify(schedules, schedule::Order::kRanks).is_ok()) return false;
  }
  return true;
}

TEST_CASE("entries say where their algorithms keep the order of ranks, and no others do everywhere") {
  for (const AlgorithmEntry& entry : catalog()) {
    if (!reduces(entry.collective)) continue;
    std::size_t stated = 0;
    std::size_t not_stated = 0;
    std::size_t broken = 0;
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (const World& world : worlds_to_prove(entry, ranks)) {
        INFO(name_of(entry.collective) << " " << entry.name << ", " << ranks << " ranks");
        const bool keeps = found_in_order(entry, world);
        const bool states = order_of(entry, world) == schedule::Order::kRanks;
        CHECK((keeps || !states));
        ++(states ? stated : not_stated);
        if (!keeps) ++broken;
      }
    }
    INFO(name_of(entry.collective) << " " << entry.name << ": " << stated << " stated, " << not_stated << " not");
    CHECK((entry.keeps_order != nullptr) == (stated > 0));
    CHECK((not_stated > 0) == (broken > 0));
  }
}

TEST_CASE("every collective that reduces can do so in the order of ranks, for any number of them") {
  for (int c = 0; c < kCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (!reduces(collective)) continue;
    for (const World& world : {World{1, {}}, World{7, {}}, World{1000, {}}, World{5, {{3, 1}, {0, 4, 2}}}}) {
      INFO(name_of(collective) << ", " << world.ranks << " ranks");
      CHECK(std::any_of(catalog().begin(), catalog().end(), [&](const AlgorithmEntry& e) {
        return e.collective == collective && e.supports(world) && order_of(e, world) == schedule::Order::kRanks;
      }));
    }
  }
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

TEST_CASE("the catalog refuses unsupported worlds") {
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
}  // namespace tutti::internal::algorithms
