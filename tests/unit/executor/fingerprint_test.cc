// Every part of a call and of its plan is contained in the fingerprint, completely, and in the text.
#include "executor/fingerprint.h"

#include <set>
#include <vector>

#include "algorithms/catalog.h"
#include "catch_compat.h"

namespace tutti::internal::executor {
namespace {

transport::Fingerprint fingerprint(std::int32_t root, std::size_t count, Collective collective = Collective::kBroadcast,
                                   DataType type = DataType::kFloat32, ReduceOp op = ReduceOp::kSum) {
  return make_fingerprint(7, collective, type, op, root, count);
}

std::vector<algorithms::World> worlds() {
  std::vector<algorithms::World> worlds;
  for (int ranks = 1; ranks <= 17; ++ranks) worlds.push_back({ranks, {}});
  worlds.push_back({4, {{0, 1}, {2, 3}}});
  worlds.push_back({6, {{0, 3, 4}, {1, 2, 5}}});
  worlds.push_back({7, {{0}, {1, 2, 3}, {4, 5, 6}}});
  worlds.push_back({8, {{0, 1, 2, 3}, {4, 5, 6, 7}}});
  return worlds;
}

}  // namespace

TEST_CASE("calls that differ in any part have different fingerprints") {
  const transport::Fingerprint base = fingerprint(3, 40);
  CHECK(base == fingerprint(3, 40));
  CHECK(base != fingerprint(3 + (1 << 16), 40));
  CHECK(base != fingerprint(3 + (1 << 19), 40));
  CHECK(base != fingerprint(3, 40 + (std::size_t{1} << 32)));
  CHECK(base != fingerprint(3, 40 + (std::size_t{1} << 63)));
  CHECK(base != fingerprint(3, 40, Collective::kReduce));
  CHECK(base != fingerprint(3, 40, Collective::kBroadcast, DataType::kFloat8E5M2));
  CHECK(base != fingerprint(3, 40, Collective::kBroadcast, DataType::kFloat32, ReduceOp::kAvg));
  CHECK(base != make_fingerprint(8, Collective::kBroadcast, DataType::kFloat32, ReduceOp::kSum, 3, 40));
  for (const std::uint32_t plan : {1u, kPlanMask}) {
    CHECK(base != with_plan(base, plan));
    CHECK(base == without_plan(with_plan(base, plan)));
  }
}

TEST_CASE("texts have roots and counts in full") {
  constexpr std::int32_t kLastRank = (1 << 20) - 1;
  CHECK(describe(fingerprint(kLastRank, (std::size_t{1} << 32) + 5)) ==
        "operation 7, broadcast(count 4294967301, float, root 1048575)");
  CHECK(describe(with_plan(fingerprint(0, 3, Collective::kAllReduce, DataType::kFloat8E5M2, ReduceOp::kAvg),
                           kPlanMask)) == "operation 7, all_reduce(count 3, f8e5m2, avg)");
  const Status roots = mismatch(0, fingerprint(5, 40), {}, 1, fingerprint(5 + (1 << 16), 40));
  CHECK(roots.code() == Code::kMismatch);
  CHECK(roots.message() ==
        "ranks called different operations: rank 0 runs operation 7, broadcast(count 40, float, root 5), "
        "rank 1 runs operation 7, broadcast(count 40, float, root 65541)");
}

TEST_CASE("all ranks of an algorithm have one plan identity, and algorithms differ") {
  for (const algorithms::World& world : worlds()) {
    std::set<std::pair<Collective, std::uint32_t>> seen;
    for (const algorithms::AlgorithmEntry& entry : algorithms::catalog()) {
      if (!entry.supports(world)) continue;
      const int root = world.ranks - 1;
      const PlanIdentity first = identify(entry.name, algorithms::make_schedule(entry, world, 0, root).value(), 4096);
      INFO(name_of(entry.collective) << " by " << entry.name << ", " << world.ranks << " ranks");
      CHECK((first.hash > 0 && first.hash <= kPlanMask));
      CHECK(seen.insert({entry.collective, first.hash}).second);
      for (int rank = 1; rank < world.ranks; ++rank) {
        const PlanIdentity own =
            identify(entry.name, algorithms::make_schedule(entry, world, rank, root).value(), 4096);
        INFO("rank " << rank << ": " << own.text << ", rank 0: " << first.text);
        CHECK(own.hash == first.hash);
      }
    }
  }
}

TEST_CASE("slices and chunks are part of a plan's identity") {
  const algorithms::AlgorithmEntry& ring = *algorithms::find(Collective::kAllReduce, "ring");
  const schedule::Schedule of_four = algorithms::make_schedule(ring, {4, {}}, 0, 0).value();
  const schedule::Schedule of_five = algorithms::make_schedule(ring, {5, {}}, 0, 0).value();
  const PlanIdentity identity = identify("ring", of_four, 65536);
  CHECK(identity.text == "by ring, 4 chunks, in slices of 65536 bytes");
  CHECK(identity.hash == identify("ring", of_four, 65536).hash);
  CHECK(identity.hash != identify("ring", of_four, 131072).hash);
  CHECK(identity.hash != identify("ring", of_four, 0).hash);
  CHECK(identity.hash != identify("ring", of_five, 65536).hash);
  CHECK(identity.hash != identify("rang", of_four, 65536).hash);
}

}  // namespace tutti::internal::executor
