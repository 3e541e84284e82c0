// Agreements of the members of a communicator: whichever ranks die, stop or are cut off at any step, all that live
// return the same result, which contains the contribution of each member that it does not list as failed.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "catch_compat.h"
#include "sanitizers.h"
#include "sim/world/meeting.h"

using namespace tutti::internal;
using namespace tutti::internal::sim;
using tutti::internal::test::kAnySanitizer;

namespace {

struct Fault {
  int victim;
  std::uint64_t step;  // of the victim, from the beginning of the agreement
};

// Whether all victims have died: false if one has returned before its step.
bool die(int ranks, const std::vector<int>& members, std::uint64_t seed, const std::vector<Fault>& faults,
         std::string* wrong) {
  Family job(static_cast<unsigned>(seed), ranks, members);
  Meeting meeting(&job, "agree");
  for (const Fault& fault : faults) {
    World::at_step(job.at(fault.victim).process, fault.step, [&job, fault] { job.kill(fault.victim); });
  }
  meeting.enter_all();
  const bool over = job.eventually([&] { return meeting.is_over(); }, kBoundMs);
  *wrong = over ? meeting.what_is_wrong() : "a rank waits: " + job.world().report();
  if (!wrong->empty()) {
    for (const Fault& fault : faults) *wrong = fmt::format("rank {} at step {}: {}", fault.victim, fault.step, *wrong);
    *wrong = fmt::format("{} ranks, seed {}: {}", ranks, seed, *wrong);
  }
  return std::all_of(faults.begin(), faults.end(),
                     [&](const Fault& fault) { return job.at(fault.victim).process->dead; });
}

}  // namespace

TEST_CASE("agreement: all ranks have the same result") {
  const int ranks = GENERATE(2, 3, 6, 22, 64);
  const unsigned seed = GENERATE(1, 2, 3);
  std::vector<int> members = GENERATE_COPY(values<std::vector<int>>({ranks_below(ranks), {ranks - 1, 1}, {}}));
  if (ranks == 2 || members.empty()) members = ranks_below(ranks);
  INFO(ranks << " ranks, " << members.size() << " members, seed " << seed);
  Family job(seed, ranks, members);
  for (int i = 0; i < 3; ++i) {
    Meeting meeting(&job, "agree");
    meeting.enter_all();
    REQUIRE(job.eventually([&] { return meeting.is_over(); }));
    CHECK(meeting.what_is_wrong() == "");
    const Agreement got = meeting.of(members[0]).value();
    std::uint64_t flags = ~std::uint64_t{0};
    for (const int rank : members) flags &= without(rank);
    CHECK(got.flags == flags);
    CHECK(got.failed.empty());
    CHECK(got.offer == "id of rank " + std::to_string(*std::min_element(members.begin(), members.end())));
  }
}

TEST_CASE("agreement: a rank dies at each of its steps") {
  struct Case {
    int ranks;
    std::vector<int> members;
  };
  const auto with = GENERATE(values<Case>({{2, {0, 1}},
                                           {3, {0, 1, 2}},
                                           {5, {0, 1, 2, 3, 4}},
                                           {6, {0, 1, 2, 3, 4, 5}},
                                           {6, {5, 2, 3}},
                                           {22, {1, 5, 6, 21, 20}}}));
  const std::uint64_t seed = GENERATE(range(1, kAnySanitizer ? 2 : 4));
  for (int victim = 0; victim < with.ranks; ++victim) {
    std::string wrong;
    for (std::uint64_t step = 1; step < 500; ++step) {
      const bool died = die(with.ranks, with.members, seed, {{victim, step}}, &wrong);
      INFO(wrong);
      REQUIRE(wrong.empty());
      if (!died) break;
      REQUIRE(step < 400);
    }
  }
}

TEST_CASE("agreement: two ranks die, each at each of its steps") {
  const int ranks = GENERATE(3, 4, 6);
  for (int first = 0; first < ranks; ++first) {
    for (int second = first + 1; second < ranks; ++second) {
      bool first_died = true;
      // All steps are odd in one run and even in the other.
      for (std::uint64_t a = 1; first_died && a < 100; a += 1 + kAnySanitizer * 4) {
        bool died = true;
        for (std::uint64_t b = 1 + a % 2; died && b < 100; b += 2 + kAnySanitizer * 7) {
          std::string wrong;
          died = die(ranks, ranks_below(ranks), a * 131 + b, {{first, a}, {second, b}}, &wrong);
          first_died = died || b > 1 + a % 2;
          INFO(wrong);
          REQUIRE(wrong.empty());
        }
      }
    }
  }
}

TEST_CASE("agreement: the members that are excluded take no part, and need not live") {
  const int ranks = 7;
  Family job(1, ranks, {0, 1, 2, 3, 4, 5, 6});
  job.stop(5);
  job.kill(2);
  REQUIRE(job.eventually([&] { return job.at(0).part_failure->failed(); }));
  Meeting meeting(&job, "shrink");
  for (const int rank : {0, 1, 3, 4, 6}) meeting.enter(rank, {2, 5});
  REQUIRE(job.eventually([&] { return meeting.is_over(); }, kBoundMs));
  for (const int rank : {0, 1, 3, 4, 6}) {
    REQUIRE(meeting.error_of(rank).message() == "");
    CHECK(meeting.of(rank).value().failed.empty());
    CHECK(meeting.of(rank).value().flags == (without(0) & without(1) & without(3) & without(4) & without(6)));
  }
  // Rank 5 has contributed to no agreement, but the next one with all members is its first as well.
  job.world().go_on(job.at(5).process);
  Meeting all(&job, "agree");
  for (const int rank : {0, 1, 3, 4, 5, 6}) all.enter(rank);
  REQUIRE(job.eventually([&] { return all.is_over(); }, kBoundMs));
  CHECK(all.what_is_wrong() == "");
}

TEST_CASE("agreement: different calls are a mismatch on all ranks, which names both") {
  Family job(1, 6, {0, 1, 2, 3, 4, 5});
  Meeting meeting(&job, "tuttiCommAgree");
  for (const int rank : {0, 1, 2, 3, 5}) meeting.enter(rank);
  meeting.enter(4, {}, "tuttiCommShrink");
  REQUIRE(job.eventually([&] { return meeting.is_over(); }, kBoundMs));
  for (const int rank : job.members()) {
    CHECK(meeting.error_of(rank).code() == Code::kMismatch);
    CHECK(contains(meeting.error_of(rank), "has called tuttiCommAgree, but rank 4 has called tuttiCommShrink"));
  }
}

TEST_CASE("agreement: a member that left and did not call is an error on all others") {
  const bool before = GENERATE(false, true);
  Family job(1, 6, {0, 1, 2, 3, 4, 5});
  Meeting meeting(&job, "agree");
  if (before) job.have(3, [](Rank* self) { self->part->leave(); });
  for (const int rank : {0, 1, 2, 4, 5}) meeting.enter(rank);
  if (!before) job.have(3, [](Rank* self) { self->part->leave(); });
  REQUIRE(job.eventually([&] { return meeting.is_over(); }, kBoundMs));
  for (const int rank : {0, 1, 2, 4, 5}) {
    CHECK(meeting.error_of(rank).code() == Code::kRemoteError);
    CHECK(meeting.error_of(rank).message() == "rank 3 left the communicator and did not call agree");
  }
}

TEST_CASE("agreement: a member that does not call is a timeout on all others, which says what it calls instead") {
  const bool elsewhere = GENERATE(false, true);
  Family job(1, 6, {0, 1, 2, 3, 4, 5});
  Meeting meeting(&job, "agree");
  for (const int rank : {0, 1, 2, 4, 5}) meeting.enter(rank);
  if (elsewhere) meeting.enter(3, {5}, "shrink without rank 5");
  REQUIRE(job.eventually([&] { return meeting.is_over(); }, kPatienceMs + kBoundMs));
  for (const int rank : {0, 1, 2, 4, 5}) {
    CHECK(meeting.error_of(rank).code() == Code::kTimeout);
    const std::string rest = elsewhere ? "; rank 3 has called shrink without rank 5" : "";
    CHECK(meeting.error_of(rank).message() == "timed out: rank 3 did not call agree" + rest);
  }
  CHECK(job.world().elapsed_ms() < kPatienceMs + 1000);
}

TEST_CASE("agreement: a coordinator that is stopped for longer than the others wait is late, as they are") {
  const bool returns = GENERATE(false, true);
  Family job(1, 6, {0, 1, 2, 3, 4, 5});
  Meeting meeting(&job, "agree");
  job.stop(0);
  for (const int rank : {1, 2, 3, 4, 5}) meeting.enter(rank);
  REQUIRE(job.eventually([&] { return meeting.is_over(); }, kPatienceMs + kBoundMs));
  for (const int rank : {1, 2, 3, 4, 5}) CHECK(meeting.error_of(rank).code() == Code::kTimeout);
  if (!returns) return;
  // It finds the contributions of all others, and behind them that their time was over.
  const int later_ms = GENERATE(0, 10);
  job.world().run_for(later_ms);
  job.world().go_on(job.at(0).process);
  meeting.enter(0);
  REQUIRE(job.eventually([&] { return meeting.is_over(); }, kBoundMs));
  if (later_ms != 0) {
    CHECK(meeting.error_of(0).code() == Code::kTimeout);
    return;
  }
  // That was still on its way. The others learn that rank 0 has another result, so their communicator fails.
  CHECK(meeting.error_of(0).message() == "");
  for (const int rank : {1, 2, 3, 4, 5}) {
    REQUIRE(job.eventually([&] { return job.at(rank).part_failure->failed(); }, kBoundMs));
    CHECK(contains(job.at(rank).part_failure->status(), "gave up in an agreement in which other ranks have a result"));
  }
}

TEST_CASE("agreement: if the coordinator dies when it decides without a late member, the next one decides the same") {
  const bool is_member = GENERATE(false, true);
  const std::uint64_t seed = GENERATE(range(0, kAnySanitizer ? 2 : 10));
  const std::int64_t patience_ms = 8000;  // the coordinator's time is over a second before
  for (std::uint64_t step = 1; step < 40; ++step) {
    Family job(static_cast<unsigned>(seed), 9, is_member ? ranks_below(9) : all_but(9, {0}));
    Meeting meeting(&job, "agree");
    meeting.take_late(patience_ms);
    for (const int rank : job.members()) {
      if (rank != 4) meeting.enter(rank);
    }
    job.world().run_for(patience_ms - 1010);
    World::at_step(job.at(0).process, step, [&job] { job.kill(0); });
    INFO("seed " << seed << ", step " << step);
    REQUIRE(job.eventually([&] { return meeting.is_over(); }, kBoundMs));
    for (const int rank : job.living_members()) {
      if (rank == 4) continue;
      REQUIRE(meeting.error_of(rank).message() == "");
      CHECK(meeting.of(rank).value().late == std::vector<int>{is_member ? 4 : 3});
    }
  }
}

TEST_CASE("agreement: a member that has returned and left is asked for its result when the coordinator dies") {
  const std::uint64_t seed = GENERATE(range(0, kAnySanitizer ? 2 : 10));
  // Rank 1 tells only the ranks below it of the decision, and dies at each of its steps; so rank 2 decides again.
  for (std::uint64_t step = 1; step < 60; ++step) {
    Family job(static_cast<unsigned>(seed), 12, {1, 2, 3, 5, 6, 11});
    Meeting meeting(&job, "agree");
    World::at_step(job.at(0).process, step + seed, [&job] { job.kill(0); });
    World::at_step(job.at(1).process, step, [&job] { job.kill(1); });
    for (const int rank : {1, 2, 3}) meeting.enter(rank);
    for (const int rank : {5, 6, 11}) meeting.enter(rank, {}, {}, true);
    REQUIRE(job.eventually([&] { return meeting.is_over(); }, kBoundMs));
    INFO("seed " << seed << ", step " << step);
    REQUIRE(meeting.what_is_wrong() == "");
  }
}

TEST_CASE("agreement: a rank below a stopped one gives up for all, because the others hear of both together") {
  Family job(1, 6, {0, 1, 2, 3, 4, 5});
  Meeting meeting(&job, "agree");
  job.stop(1);
  meeting.enter(5);
  job.world().run_for(kPatienceMs - 1000);
  for (const int rank : {0, 2, 3, 4}) meeting.enter(rank);
  job.world().run_for(2000);
  CHECK(meeting.error_of(5).code() == Code::kTimeout);
  job.world().go_on(job.at(1).process);
  meeting.enter(1);
  REQUIRE(job.eventually([&] { return meeting.is_over(); }, kBoundMs));
  for (const int rank : {0, 1, 2, 3, 4}) {
    CHECK(meeting.error_of(rank).message() ==
          "timed out: rank 5 gave up agree after its whole timeout, so it ends on all ranks");
  }
}

// Rank 2 knows only a communicator that all others have left, so by this alone it cannot tell a dead rank from one that
// leaves.
TEST_CASE("agreement: a rank that others have left out takes a dead rank for dead as soon as they do") {
  const std::uint64_t seed = GENERATE(range(0, 5));
  Family job(static_cast<unsigned>(seed), 4, {0, 1, 3});
  for (const int rank : job.members()) job.have(rank, [](Rank* self) { self->whole->leave(); });
  // Ranks 2 and 3 both look for a parent, and rank 3 finds rank 2.
  job.kill(0);
  job.kill(1);
  Meeting meeting(&job, "agree");
  meeting.enter(3);
  const std::int64_t begin_ms = job.world().elapsed_ms();
  REQUIRE(job.eventually([&] { return meeting.is_over(); }, 20'000));
  CHECK(job.world().elapsed_ms() - begin_ms < kMissedMs);
  REQUIRE(meeting.error_of(3).message() == "");
  CHECK(meeting.of(3).value().failed == std::vector<int>{0, 1});
}

TEST_CASE("agreement: after an error the ranks sleep, and a later death damages nothing") {
  // Rank 0 decides without those that do not call. Rank 1 has told no rank yet, because rank 5 below it has not called.
  Family job(1, 6, {1, 2, 3, 4, 5});
  Meeting meeting(&job, "agree");
  meeting.enter(1);
  meeting.enter(2, {}, "another call");
  meeting.enter(3);
  REQUIRE(job.eventually([&] { return meeting.is_over(); }, kBoundMs));
  for (const int rank : {1, 2, 3}) CHECK(meeting.error_of(rank).code() == Code::kMismatch);
  const std::uint64_t steps = job.at(1).process->steps;
  job.world().run_for(1000);
  CHECK(job.at(1).process->steps < steps + 100);
  job.kill(0);
  job.world().run_for(1000);
  for (const int rank : job.members()) {
    INFO("rank " << rank);
    CHECK(job.at(rank).part_failure->status().message() == "");
  }
}

TEST_CASE("agreement: a rank that calls after the others have had an error, and gone on, gets that error") {
  Family job(1, 3, {0, 1, 2});
  for (int i = 0; i < 3; ++i) {
    Meeting meeting(&job, "agree");
    meeting.enter(0);
    meeting.enter(1, {}, "another call");
    REQUIRE(job.eventually([&] { return meeting.is_over(); }, kBoundMs));
    CHECK(meeting.error_of(0).code() == Code::kMismatch);
  }
  for (int i = 0; i < 3; ++i) {
    Meeting meeting(&job, "agree");
    meeting.enter(2);
    REQUIRE(job.eventually([&] { return meeting.is_over(); }, kBoundMs));
    CHECK(meeting.error_of(2).code() == Code::kMismatch);
  }
}
