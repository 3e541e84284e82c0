// When a rank yields its processor instead of spinning: the rule on made-up times, and waiters that share a processor.
#include "executor/waiter.h"

#include <sched.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "catch_compat.h"
#include "executor/turn_taking.h"

namespace tutti::executor {
namespace {

constexpr std::int64_t kAlone = TurnTaking::kAloneNs / 3;
constexpr std::int64_t kTurn = 20'000;
constexpr std::int64_t kTimeSlice = 3'000'000;

std::int64_t switches = 0;
std::int64_t counted_switches() {
  return switches;
}

// A rank whose yields take as long as it is told.
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

TEST_CASE("a rank first goes to another processor, then takes turns, and spins again when it is alone") {
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

TEST_CASE("an odd long yield among short ones is nothing") {
  Rank rank;
  for (int i = 0; i < 1000; ++i) {
    rank.yield(kTurn, 1);
    rank.yield(kAlone, 2, false);
  }
  CHECK(rank.left == 0);
  CHECK_FALSE(rank.turns.taking_turns());
}

TEST_CASE("nothing is given to a program that does not yield") {
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

TEST_CASE("yields that take long by themselves are no turns of others") {
  Rank rank;
  rank.yield(kTurn, 1000, false);
  CHECK_FALSE(rank.turns.taking_turns());
}

TEST_CASE("a rank that takes turns tries from time to time whether it still must") {
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

class NothingComes final : public Waiting {
 public:
  void list(std::vector<For>*) const override {}
};

// What one rank does for one wait that ends soon after its first yields.
void wait_once(Waiter& waiter, const Waiting& waiting) {
  waiter.begin(waiting);
  for (int i = 0; i < 520; ++i) (void)waiter.idle();
}

std::unique_ptr<Waiter> make_waiter(const transport::Doorbell& doorbell, const FailureState& failure) {
  return std::move(Waiter::create(doorbell, failure, false, 60'000).value());
}

// How many of 1000 yields took as long as others need for a turn: fewer where programs run that do not yield.
int turns_of_others() {
  int turns = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t begin = now_ns();
    ::sched_yield();
    const std::int64_t took = now_ns() - begin;
    turns += took >= TurnTaking::kAloneNs && took <= TurnTaking::kTurnNs;
  }
  return turns;
}

TEST_CASE("ranks of several communicators that share a processor take turns, and one that is left spins") {
  cpu_set_t allowed;
  REQUIRE(::sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  cpu_set_t one = allowed;
  for (unsigned cpu = 0; CPU_COUNT(&one) > 1; ++cpu) CPU_CLR(cpu, &one);
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);

  const auto made = transport::Doorbell::create();
  REQUIRE(made.is_ok());
  const transport::Doorbell& doorbell = made.value();
  const FailureState failure;
  const NothingComes waiting;
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      const auto waiter = make_waiter(doorbell, failure);
      while (!stop) wait_once(*waiter, waiting);
    });
  }
  const auto waiter = make_waiter(doorbell, failure);
  CHECK_FALSE(waiter->takes_turns());
  // Others may use this processor too: only where most yields are the turns of the ranks above must it be noticed.
  bool noticed = false, could = false;
  const Deadline deadline = Deadline::after_ms(10'000);
  while (!noticed && !deadline.passed()) {
    const bool quiet = turns_of_others() > 900;
    for (int i = 0; i < 100 && !noticed; ++i) {
      wait_once(*waiter, waiting);
      noticed = waiter->takes_turns();
    }
    could = could || (quiet && turns_of_others() > 900);
  }
  stop = true;
  for (std::thread& t : others) t.join();
  bool alone = !waiter->takes_turns();
  const Deadline until = Deadline::after_ms(30'000);
  while (!alone && !until.passed()) {
    wait_once(*waiter, waiting);
    alone = !waiter->takes_turns();
  }
  REQUIRE(::sched_setaffinity(0, sizeof allowed, &allowed) == 0);
  CHECK(alone);
  if (!noticed && !could) WARN("programs that do not yield use this processor all the time");
  CHECK((noticed || !could));
}

}  // namespace
}  // namespace tutti::executor
