// Sets of ranks, compared with sets of the standard library.
#include "control/rank_set.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <set>

#include "catch_compat.h"

using tutti::internal::RankSet;

namespace {

std::set<int> members_of(const RankSet& ranks) {
  std::set<int> result;
  ranks.each([&](int rank) { result.insert(rank); });
  return result;
}

}  // namespace

TEST_CASE("rank sets: sums, differences and look-ups are those of sets") {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    RankSet sets[2];
    std::set<int> expected[2];
    for (int which = 0; which < 2; ++which) {
      for (auto i = random() % 6; i > 0; --i) {
        const int first = static_cast<int>(random() % 40);
        const int end = first + static_cast<int>(random() % 8);
        sets[which].add(RankSet(first, end));
        for (int rank = first; rank < end; ++rank) expected[which].insert(rank);
      }
    }
    const auto& [a, b] = sets;
    REQUIRE(members_of(a) == expected[0]);
    REQUIRE(a.size() == static_cast<int>(expected[0].size()));
    REQUIRE(a.empty() == expected[0].empty());
    for (int rank = -1; rank < 50; ++rank) REQUIRE(a.contains(rank) == (expected[0].count(rank) != 0));
    std::set<int> rest;
    std::set_difference(expected[0].begin(), expected[0].end(), expected[1].begin(), expected[1].end(),
                        std::inserter(rest, rest.begin()));
    REQUIRE(members_of(a.without(b)) == rest);
    REQUIRE(b.contains(a) == rest.empty());
    RankSet both = a;
    both.add(b);
    expected[0].insert(expected[1].begin(), expected[1].end());
    REQUIRE(members_of(both) == expected[0]);
    if (!both.empty()) REQUIRE(both.front() == *expected[0].begin());
    for (std::size_t i = 1; i < both.ranges().size(); ++i) REQUIRE(both.ranges()[i - 1].end < both.ranges()[i].first);
  }
}

TEST_CASE("rank sets: adjacent ranges are merged, in any order") {
  RankSet all;
  for (const int rank : {3, 1, 0, 5, 2, 4}) all.add(RankSet(rank, rank + 1));
  CHECK(all == RankSet(0, 6));
  CHECK(all.ranges().size() == 1);
}
