// The rules by which a rank spins, yields its processor or sleeps, with artificial times.
#include "executor/turn_taking.h"

#include <cstdint>

#include "catch_compat.h"

namespace tutti::internal::executor {
namespace {

constexpr std::int64_t kAlone = TurnTaking::kAloneNs / 3;
constexpr std::int64_t kTurn = 20'000;
constexpr std::int64_t kTimeSlice = 3'000'000;

std::int64_t switches = 0;
std::int64_t counted_switches() {
  return switches;
}

// A rank whose yields take a given time.
struct Rank {
  TurnTaking turns{&counted_switches};
  std::int64_t now = 10'000'000'000;
  int left = 0;

  void yield(std::int64_t took_ns, int times, bool switched = true) {
    for (int i = 0; i < times; ++i) {
      now += took_ns;
      switches += switched ? 1 : 0;
      left += turns.note(took_ns, now) == TurnTaking::Advice::kLeaveProcessor;
    }
  }
};

TEST_CASE("a rank first moves to another processor, then yields, and spins again when it is alone") {
  Rank rank;
  rank.yield(kAlone, 1000, false);
  CHECK(rank.left == 0);
  rank.yield(kTurn, TurnTaking::kYields);
  CHECK(rank.left == 1);
  CHECK_FALSE(rank.turns.taking_turns());
  rank.yield(kTurn, TurnTaking::kYields);
  CHECK(rank.left == 1);
  CHECK(rank.turns.taking_turns());
  rank.yield(kAlone, TurnTaking::kYields, false);
  CHECK_FALSE(rank.turns.taking_turns());
}

TEST_CASE("a single long yield among short ones has no effect") {
  Rank rank;
  for (int i = 0; i < 1000; ++i) {
    rank.yield(kTurn, 1);
    rank.yield(kAlone, 2, false);
  }
  CHECK(rank.left == 0);
  CHECK_FALSE(rank.turns.taking_turns());
}

// Waits until one may yield again.
int sleeps_of(YieldTrials* trials) {
  int n = 0;
  while (trials->sleeps()) ++n;
  return n;
}

TEST_CASE("the more trials of a yield cost a time slice, the rarer they become") {
  YieldTrials trials;
  CHECK(sleeps_of(&trials) == 0);
  trials.note(kTurn);
  CHECK(sleeps_of(&trials) == 0);
  int before = 0;
  for (int i = 0; i < 4; ++i) {
    trials.note(kTimeSlice);
    const int now = sleeps_of(&trials);
    CHECK(now > before);
    before = now;
  }
  for (int i = 0; i < 20; ++i) trials.note(kTimeSlice);
  CHECK(trials.pending());
  CHECK(sleeps_of(&trials) == YieldTrials::kMost);
  CHECK_FALSE(trials.pending());
  for (int i = 0; i < 8; ++i) trials.note(kAlone);
  trials.note(kTimeSlice);
  CHECK(sleeps_of(&trials) == TurnTaking::kSleepsPerSlice);
}

struct Between {
  int waits = 0;
  int shorts = 0;  // of these, the number that spin for a short time
};

// A useless wait, this long after the preceding sleep, and this many operations later.
TurnTaking::Advice wait_in_vain(VainSpins* spins, std::int64_t* now, std::int64_t after_ns,
                                std::uint32_t operations = 2) {
  constexpr std::uint32_t kBefore = 0xffffffff;
  spins->woke(*now, kBefore);
  return spins->note(*now += after_ns, kBefore + operations);
}

// A useless long spin, and the waits until the next one.
Between between_long_spins(VainSpins* spins, std::int64_t* now, std::int64_t after_ns) {
  wait_in_vain(spins, now, after_ns);
  Between between;
  for (; spins->next() != VainSpins::Spin::kLong; ++between.waits) {
    if (spins->next() == VainSpins::Spin::kShort) ++between.shorts;
    wait_in_vain(spins, now, after_ns);
  }
  return between;
}

TEST_CASE("the more long spins soon after a sleep are useless, the more of the next waits sleep at once") {
  VainSpins spins;
  std::int64_t now = 10'000'000'000;
  CHECK(spins.next() == VainSpins::Spin::kLong);
  // A peer that loses its processor for a time slice now and then: no reason to spin less.
  for (int i = 0; i < 5; ++i) CHECK(between_long_spins(&spins, &now, kTimeSlice).waits == 0);
  int before = 0;
  for (int i = 0; i < 8; ++i) {
    const Between between = between_long_spins(&spins, &now, kTurn);
    CHECK(between.waits > before);
    before = between.waits;
    // A peer that has lost its processor for once: the next spins find it, since they are not too short.
    if (between.waits <= VainSpins::kMostShort) CHECK(between.shorts == between.waits);
  }
  for (int i = 0; i < 20; ++i) {
    const Between between = between_long_spins(&spins, &now, kTurn);
    CHECK(between.waits == VainSpins::kMostBetween);
    // When a peer has a processor again, this is noticed soon.
    CHECK(between.shorts == VainSpins::kMostBetween / (VainSpins::kMostShort + 1));
  }
  CHECK(between_long_spins(&spins, &now, kTimeSlice).waits == 0);
  CHECK(between_long_spins(&spins, &now, kTurn).waits == 1);
  // If a wait made progress for a while first, the next spin is long again, whatever it spun.
  while (spins.next() != VainSpins::Spin::kOnce) wait_in_vain(&spins, &now, kTurn);
  wait_in_vain(&spins, &now, kTimeSlice);
  CHECK(spins.next() == VainSpins::Spin::kLong);
  while (spins.next() != VainSpins::Spin::kOnce) wait_in_vain(&spins, &now, kTurn);
  wait_in_vain(&spins, &now, kTurn, VainSpins::kFewOperations + 1);
  CHECK(spins.next() == VainSpins::Spin::kLong);
}

TEST_CASE("a rank leaves the processor once before it sleeps at once") {
  VainSpins spins;
  std::int64_t now = 10'000'000'000;
  int leaves = 0;
  for (int i = 0; i < 2000; ++i) {
    if (wait_in_vain(&spins, &now, kTurn) == TurnTaking::Advice::kLeaveProcessor) {
      CHECK(leaves == 0);
      ++leaves;
      CHECK(spins.next() == VainSpins::Spin::kOnce);
    }
  }
  CHECK(leaves == 1);
}

TEST_CASE("a rank does not leave its processor again soon, for any reason") {
  TurnTaking turns([]() -> std::int64_t { return 0; });
  std::int64_t now = 10'000'000'000;
  CHECK(turns.leaves(now));
  CHECK_FALSE(turns.leaves(now + TurnTaking::kLeaveIntervalNs - 1));
  CHECK(turns.leaves(now += TurnTaking::kLeaveIntervalNs));
  for (int i = 0; i < 2 * TurnTaking::kYields; ++i) {
    CHECK(turns.note(TurnTaking::kAloneNs, now + 1) == TurnTaking::Advice::kStay);
  }
}

TEST_CASE("a program that does not yield gets no time slices") {
  Rank rank;
  rank.yield(kTurn, 2 * TurnTaking::kYields);
  REQUIRE(rank.turns.taking_turns());
  rank.yield(kTimeSlice, 1);
  CHECK_FALSE(rank.turns.taking_turns());
  bool taking = false;
  for (int i = 0; i < 1000; ++i) {
    rank.yield(kTurn, TurnTaking::kYields - 1);
    rank.yield(kTimeSlice, 1);
    taking = taking || rank.turns.taking_turns();
  }
  CHECK_FALSE(taking);
}

TEST_CASE("yields that are slow by themselves do not count as other ranks' turns") {
  Rank rank;
  rank.yield(kTurn, 1000, false);
  CHECK_FALSE(rank.turns.taking_turns());
}

TEST_CASE("an oversubscribed rank checks from time to time whether it still is") {
  Rank rank;
  rank.yield(kTurn, 2 * TurnTaking::kYields);
  REQUIRE(rank.turns.taking_turns());
  const int left = rank.left;
  int trials = 0;
  const std::int64_t until = rank.now + 10 * TurnTaking::kTrialIntervalNs;
  while (rank.now < until) {
    const bool before = rank.turns.taking_turns();
    rank.yield(kTurn, 1);
    trials += before && !rank.turns.taking_turns();
  }
  CHECK(trials >= 9);
  CHECK(trials <= 10);
  CHECK(rank.left - left == trials);
  rank.yield(kTurn, 2 * TurnTaking::kYields);
  CHECK(rank.turns.taking_turns());
}

}  // namespace
}  // namespace tutti::internal::executor
