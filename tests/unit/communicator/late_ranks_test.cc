// Which late ranks are back, and which are invited, after notices in any order.
#include "communicator/late_ranks.h"

#include <vector>

#include "catch_compat.h"

namespace tutti::internal::test {
namespace {

constexpr std::int64_t kForever = 1'000'000;

RankSet set_of(const std::vector<int>& ranks) {
  RankSet set;
  for (const int rank : ranks) set.append(rank, rank + 1);
  return set;
}

}  // namespace

TEST_CASE("late ranks are invited when all are back, or when one has waited long enough") {
  LateRanks late(0);
  REQUIRE(late.to_invite({2, 5}, {}, 0).empty());
  late.hear(LateReturn{2, 0, 10});
  REQUIRE(late.to_invite({2, 5}, {}, kForever).empty());
  REQUIRE(late.to_invite({2, 5}, {}, 0) == set_of({2}));
  REQUIRE(late.to_invite({2, 5}, set_of({5}), kForever) == set_of({2}));  // the other one has died or left
  REQUIRE(late.to_invite({5}, {}, 0).empty());
  late.hear(LateReturn{5, 0, 11});
  REQUIRE(late.to_invite({2, 5}, {}, kForever) == set_of({2, 5}));
  REQUIRE(late.to_invite({2, 5}, set_of({2}), kForever) == set_of({5}));
}

TEST_CASE("an invited rank is back again only if it says so in its new phase") {
  LateRanks late(0);
  late.hear(LateReturn{2, 0, 10});
  const std::uint32_t phase = late.next_phase(0);
  REQUIRE(phase == 1);
  late.hear(Invitation{phase, 12, set_of({0, 1, 2}), set_of({3}), false});
  REQUIRE(late.to_invite({2}, {}, 0).empty());
  late.hear(LateReturn{2, 0, 10});  // the old notice again
  REQUIRE(late.to_invite({2}, {}, 0).empty());
  late.hear(LateReturn{2, 1, 12});
  REQUIRE(late.to_invite({2}, {}, 0) == set_of({2}));
  late.hear(Invitation{phase, 12, set_of({0, 1, 2}), set_of({3}), false});  // also the old one
  REQUIRE(late.to_invite({2}, {}, 0) == set_of({2}));
  REQUIRE(late.next_phase(0) == 2);
  REQUIRE(late.next_phase(7) == 8);
}

TEST_CASE("a late rank takes the last invitation that names it, and none of a phase that it knows") {
  LateRanks late(2);
  REQUIRE(!late.invitation(0));
  late.hear(Invitation{3, 20, set_of({0, 2}), set_of({1}), false});
  REQUIRE(late.invitation(0)->phase == 3);
  REQUIRE(late.invitation(2)->calls == 20);
  REQUIRE(late.invitation(2)->late == set_of({1}));
  REQUIRE(!late.invitation(3));
  REQUIRE(late.have_gone_on(2));
  REQUIRE(!late.have_gone_on(3));
  // The others have left it out again, and gone on.
  late.hear(Invitation{4, 21, set_of({0, 1}), set_of({2}), false});
  REQUIRE(late.invitation(2)->phase == 4);
  REQUIRE(late.have_gone_on(3));
  REQUIRE(late.next_phase(0) == 5);
  late.hear(Invitation{3, 20, set_of({0, 2}), set_of({1}), false});
  REQUIRE(late.invitation(2)->phase == 4);
}

TEST_CASE("if all ranks that live are back, none is on time, and all are invited with the highest number of calls") {
  LateRanks late(0);
  late.hear(LateReturn{0, 2, 9});
  late.hear(LateReturn{3, 1, 12});
  REQUIRE(!late.invite_all(set_of({0, 1, 3})));
  const auto all = late.invite_all(set_of({0, 3}));
  REQUIRE(all);
  REQUIRE(all->phase == 3);
  REQUIRE(all->calls == 12);
  REQUIRE(all->members == set_of({0, 3}));
  REQUIRE(all->all_were_late);
  late.hear(*all);
  REQUIRE(late.have_gone_on(0));  // this rank is expected there
  REQUIRE(!late.invite_all(set_of({0, 3})));
  // Rank 0 is on time again.
  late.hear(LateReturn{3, 3, 13});
  REQUIRE(!late.invite_all(set_of({0, 3})));
}

}  // namespace tutti::internal::test
