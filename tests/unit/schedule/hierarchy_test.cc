#include "algorithms/hierarchy.h"

#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "algorithms/catalog.h"
#include "catch_compat.h"
#include "schedule/builder.h"

namespace tutti::internal::algorithms {
namespace {

using Lists = std::vector<std::vector<int>>;

const Hosts kHosts = {{0, 1, 2, 3}, {4, 5, 6, 7}};
const Hosts kPackages = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
const Hosts kMixed = {{7, 0}, {3, 5}, {1, 6}, {2, 4}};  // in the order of kMixedHosts
const Hosts kMixedHosts = {{0, 3, 5, 7}, {1, 2, 4, 6}};

std::vector<int> ranks_of(const Group& group) {
  std::vector<int> ranks;
  for (int i = 0; i < group.size(); ++i) ranks.push_back(group.rank(i));
  return ranks;
}

TEST_CASE("a division without groups, or equal to the one before, is dropped") {
  const Hosts alone = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
  const Hosts together = {{0, 1, 2, 3, 4, 5, 6, 7}};
  CHECK(Hierarchy({together, alone}).empty());
  CHECK(Hierarchy({Hosts()}).empty());
  const Hierarchy two({together, kHosts, kHosts, kPackages, alone});
  REQUIRE(two.size() == 2);
  CHECK(two[0] == kHosts);
  CHECK(two[1] == kPackages);
  CHECK(two.outermost(1) == Hierarchy({kHosts}));
  CHECK(two.outermost(5) == two);
  CHECK(two.check(8).is_ok());
  CHECK(Hierarchy().check(5).is_ok());
}

TEST_CASE("divisions that are not nested, or do not contain all ranks, are refused") {
  const auto refused = [](std::vector<Hosts> divisions, int ranks) {
    return Hierarchy(std::move(divisions)).check(ranks).code() == Code::kInvalidArgument;
  };
  CHECK(refused({kHosts, kPackages}, 9));
  CHECK(refused({kPackages, kHosts}, 8));
  CHECK(refused({kHosts, {{0, 1, 2}, {3, 4, 5}, {6, 7}}}, 8));
  CHECK(refused({kHosts, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}}, 8));
  CHECK(refused({kHosts, {{0, 1}, {2, 3}, {4, 5}}}, 8));
  CHECK(refused({{{0, 1}, {1, 2}}}, 3));
  CHECK(refused({{{0, 1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 11}}, {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}}}, 12));
}

// With coordinates: the value computed for groups in order equals the value found for others.
TEST_CASE("a rank's peers have its place at all other levels") {
  const Hierarchy in_order({kHosts, kPackages});
  CHECK(ranks_of(Levels(in_order, 8, 5).peers(0)) == std::vector<int>{1, 5});
  CHECK(ranks_of(Levels(in_order, 8, 5).peers(1)) == std::vector<int>{5, 7});
  CHECK(ranks_of(Levels(in_order, 8, 5).peers(2)) == std::vector<int>{4, 5});
  CHECK(Levels(in_order, 8, 5).layer(1) == Lists{{1, 3}, {5, 7}});
  CHECK(Levels(in_order, 8, 5).layer(2) == Lists{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  const Hierarchy mixed({kMixedHosts, kMixed});
  REQUIRE(mixed.check(8).is_ok());
  CHECK_FALSE(mixed.are_in_order());
  CHECK(ranks_of(Levels(mixed, 8, 6).peers(0)) == std::vector<int>{0, 6});
  CHECK(ranks_of(Levels(mixed, 8, 6).peers(1)) == std::vector<int>{6, 4});
  CHECK(ranks_of(Levels(mixed, 8, 6).peers(2)) == std::vector<int>{1, 6});
  CHECK(Levels(mixed, 8, 6).layer(1) == Lists{{0, 5}, {6, 4}});
}

TEST_CASE("the leader of a group leads one at each inner level, and the root leads its own") {
  for (const Hierarchy& hierarchy :
       {Hierarchy({kHosts, kPackages}), Hierarchy({kMixedHosts, kMixed}), Hierarchy({kHosts}),
        Hierarchy({{{0, 5, 6}, {1, 2, 3, 4, 7}}, {{6}, {0, 5}, {3, 2}, {7, 1, 4}}})}) {
    for (int root = -1; root < 8; ++root) {
      std::set<int> outermost;
      for (int rank = 0; rank < 8; ++rank) {
        const Levels levels(hierarchy, 8, rank);
        INFO("rank " << rank << ", root " << root);
        CHECK(levels.leads(levels.innermost(), root));
        for (std::size_t level = 0; level < levels.innermost(); ++level) {
          if (levels.leads(level, root)) CHECK(levels.leads(level + 1, root));
        }
        if (rank == root) CHECK(levels.leads(0, root));
        for (std::size_t level = 0; level <= levels.innermost(); ++level) {
          if (!levels.leads(level, root)) continue;
          const Group leaders = levels.leaders(level, root);
          CHECK(leaders.rank(leaders.index()) == rank);
          const int head = leaders.rank(levels.head(level, root, leaders));
          if (level > 0) CHECK((head == rank) == levels.leads(level - 1, root));
          if (level == 0 && root >= 0) CHECK(head == root);
          if (level == 0) outermost.insert(rank);
        }
      }
      CHECK(outermost.size() == hierarchy[0].size());
    }
  }
}

TEST_CASE("a hierarchical algorithm uses all divisions, or the number in its name") {
  const World world{8, kHosts, Hierarchy({kHosts, kPackages})};
  const auto peers = [&](const char* name) {
    std::set<int> all;
    const auto schedule = make_schedule(*find(Collective::kAllReduce, name), world, 0, 0);
    REQUIRE(schedule.is_ok());
    for (const schedule::Step& s : schedule.value().steps) {
      if (!schedule::is_local(s.kind)) all.insert(s.peer);
    }
    return all;
  };
  CHECK(peers("hierarchical") == std::set<int>{1, 2, 4});
  CHECK(peers("hierarchical:1") == std::set<int>{1, 2, 3, 4});
  CHECK(peers("hierarchical:2") == peers("hierarchical"));
  CHECK_FALSE(find(Collective::kAllReduce, "hierarchical:3")->supports(world));
  CHECK(find(Collective::kAllReduce, "hierarchical:1")->supports(World{8, kHosts}));
  // Of identical candidates, only one remains.
  const auto names = [](const World& of, int ports) {
    std::set<std::string> all;
    for (const AlgorithmEntry* e : candidates(Collective::kAllReduce, of, ports)) all.insert(e->name);
    return all;
  };
  CHECK(names(world, 1).contains("hierarchical:1"));
  CHECK_FALSE(names(World{8, kHosts}, 1).contains("hierarchical:1"));
  CHECK(names(World{8, kHosts}, 1).contains("hierarchical"));
  CHECK_FALSE(names(world, 1).contains("ring:2"));
  CHECK(names(world, 4).contains("ring:4"));
  CHECK(names(world, 0).contains("ring:2"));
  CHECK(find(Collective::kAllReduce, "hierarchical")->supports(World{8, {}, Hierarchy({kPackages})}));
  CHECK_FALSE(find(Collective::kAllReduce, "hierarchical")->supports(World{8, {}}));
}

TEST_CASE("channels of a ring go from host to host by different ranks") {
  const World world{8, kHosts};
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
    std::set<int> leaving;
    for (int rank = 0; rank < 4; ++rank) {
      const auto schedule = make_schedule(*find(collective, "ring:2"), world, rank, 0);
      REQUIRE(schedule.is_ok());
      for (const schedule::Step& s : schedule.value().steps) {
        if (s.kind == schedule::StepKind::kSend && s.peer >= 4) leaving.insert(rank);
      }
    }
    CHECK(leaving == std::set<int>{1, 3});
  }
  CHECK_FALSE(find(Collective::kAllReduce, "ring:2")->supports(World{8, {}}));
  CHECK_FALSE(find(Collective::kAllReduce, "ring:5")->supports(world));
  CHECK(find(Collective::kAllReduce, "ring")->supports(World{8, {}}));
}

}  // namespace
}  // namespace tutti::internal::algorithms
