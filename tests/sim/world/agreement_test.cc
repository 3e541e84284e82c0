// Agreements of the members of a communicator: whichever ranks die, stop or are cut off at any step, all that live
// return the same result, which contains the contribution of each member that it does not list as failed.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "catch_compat.h"
#include "sanitizers.h"
#include "sim/world/family.h"

using namespace tutti::internal;
using namespace tutti::internal::sim;
using tutti::internal::test::kAnySanitizer;

namespace {

constexpr std::int64_t kPatienceMs = 60'000;
// Ranks die at once. A neighbour of the dead rank that dies as well makes the others look for the ranks below.
constexpr std::int64_t kBoundMs = 2'000;

std::uint64_t without(int rank) {
  return ~(std::uint64_t{1} << (rank % 64));
}

// One agreement of the members of a family's communicator, in which each clears the bit of its rank.
class Meeting {
 public:
  Meeting(Family* job, std::string call) : job_(*job), call_(std::move(call)) {}

  // Starts a thread of the rank, which takes part. `leaves`: it leaves the communicator when it has the result.
  void enter(int rank, std::vector<int> excluded = {}, std::string call = {}, bool leaves = false) {
    Rank* const self = &job_.at(rank);
    ControlTree* const tree = self->part != nullptr ? self->part.get() : self->whole.get();
    entered_.push_back(rank);
    job_.world().start_thread(
        self->process, [results = results_, rank, self, tree, leaves, excluded, text = call.empty() ? call_ : call] {
          const Proposal own{text, excluded, without(rank), "id of rank " + std::to_string(rank)};
          ++self->inside;
          results->insert_or_assign(rank, tree->agree(own, Deadline::after_ms(kPatienceMs), {}));
          if (leaves) tree->leave();
          --self->inside;
        });
  }
  void enter_all() {
    for (const int rank : job_.members()) enter(rank);
  }
  [[nodiscard]] bool is_over() const {
    return std::all_of(entered_.begin(), entered_.end(),
                       [this](int rank) { return job_.at(rank).process->dead || results_->contains(rank); });
  }
  [[nodiscard]] const Result<Agreement>& of(int rank) const { return results_->at(rank); }
  [[nodiscard]] Status error_of(int rank) const { return results_->at(rank).status(); }

  // What is wrong with the results; empty: nothing. `held`: ranks that did not answer for a while, and may have failed.
  [[nodiscard]] std::string what_is_wrong(const std::vector<int>& held = {}) const {
    const std::vector<int>& members = job_.members();
    const Agreement* first = nullptr;
    const auto place = [&](int rank) {
      return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
    };
    for (const int rank : members) {
      if (job_.at(rank).process->dead || is_in(held, rank)) continue;
      const auto at = results_->find(rank);
      if (at == results_->end()) return fmt::format("rank {} has no result", rank);
      if (!at->second.is_ok()) return fmt::format("rank {}: {}", rank, at->second.status().message());
      const Agreement& own = at->second.value();
      if (first == nullptr) first = &own;
      if (own.flags != first->flags || own.offer != first->offer || own.failed != first->failed) {
        return fmt::format("rank {} has another result", rank);
      }
    }
    if (first == nullptr) return {};
    for (const int rank : members) {
      const bool failed = is_in(first->failed, place(rank));
      const bool may_fail = job_.at(rank).process->dead || is_in(held, rank);
      if (failed && !may_fail) return fmt::format("the living rank {} counts as failed", rank);
      if (!failed && (first->flags & ~without(rank)) != 0) return fmt::format("rank {} did not contribute", rank);
      if (failed || !is_in(held, rank) || job_.at(rank).process->dead) continue;
      // It was held, but the others have waited for it.
      const auto at = results_->find(rank);
      if (at == results_->end() || !at->second.is_ok()) continue;  // it has been given up since
      if (at->second.value().flags != first->flags) return fmt::format("rank {} has another result", rank);
    }
    return {};
  }

 private:
  Family& job_;
  const std::string call_;
  std::vector<int> entered_;
  // The threads of ranks that are dead run to their ends after this.
  const std::shared_ptr<std::map<int, Result<Agreement>>> results_ =
      std::make_shared<std::map<int, Result<Agreement>>>();
};

std::vector<int> ranks_below(int ranks) {
  return all_but(ranks, {});
}

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

namespace {

// Deaths, stops and cuts at random moments around two agreements in a row.
class Chaos {
 public:
  Chaos(std::uint64_t seed, int most_ranks) : seed_(seed), random_(seed) {
    ranks_ = 2 + draw(most_ranks - 1);
    for (int rank = 0; rank < ranks_; ++rank) {
      if (draw(3) != 0) members_.push_back(rank);
    }
    if (members_.size() < 2) members_ = ranks_below(ranks_);
    std::shuffle(members_.begin(), members_.end(), random_);
  }

  std::string run() {
    Family job(static_cast<unsigned>(seed_), ranks_, members_);
    for (int n = draw(4); n > 0; --n) {
      const int rank = draw(ranks_);
      const auto step = static_cast<std::uint64_t>(1 + draw(80));
      if (draw(3) != 0) {
        if (job.at(rank).process->dead || draw(ranks_) == 0) continue;
        World::at_step(job.at(rank).process, step, [&job, rank] { job.kill(rank); });
        continue;
      }
      held_.push_back(rank);
      hold(&job, rank, step);
    }
    Meeting first(&job, "agree");
    for (const int rank : members_) first.enter(rank);
    std::string wrong = end_of(&job, &first);
    if (!wrong.empty()) return wrong;
    // The second has the same members, some of which have died.
    Meeting second(&job, "agree");
    for (const int rank : members_) {
      if (!job.at(rank).process->dead && !is_given_up(first, rank)) second.enter(rank);
    }
    return end_of(&job, &second);
  }
  [[nodiscard]] std::string text() const { return fmt::format("seed {}: {} ranks", seed_, ranks_); }

 private:
  int draw(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }
  static bool is_given_up(const Meeting& meeting, int rank) { return !meeting.of(rank).is_ok(); }
  // Stops the rank, or cuts it off from the others, for a while.
  void hold(Family* job, int rank, std::uint64_t step) {
    const bool cut = draw(2) == 0;
    const int ms = 1 + draw(2000);
    World::at_step(job->at(rank).process, step, [job, rank, cut, ms] {
      World& world = job->world();
      Process* const process = job->at(rank).process;
      if (process->dead) return;
      cut ? world.cut_off(process) : world.stop(process);
      world.after_ms(ms, [&world, process, cut] { cut ? world.reconnect(process) : world.go_on(process); });
    });
  }
  std::string end_of(Family* job, Meeting* meeting) {
    if (!job->eventually([&] { return meeting->is_over(); }, 30'000)) return "a rank waits: " + job->world().report();
    return meeting->what_is_wrong(held_);
  }

  const std::uint64_t seed_;
  std::mt19937_64 random_;
  int ranks_ = 2;
  std::vector<int> members_;
  std::vector<int> held_;
};

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

// SEEDS=10000 AGREEING_RANKS=1000 sim_agreement_test "*faults*" runs more.
TEST_CASE("agreement: deaths, stops and lost connections, several faults drawn from a seed") {
  const std::uint64_t seeds = number_from("SEEDS", kAnySanitizer ? 100 : 1000);
  const auto most_ranks = static_cast<int>(number_from("AGREEING_RANKS", 24));
  for (std::uint64_t seed = number_from("FIRST_SEED", 1); seeds > 0 && seed <= seeds; ++seed) {
    Chaos chaos(seed, most_ranks);
    const std::string wrong = chaos.run();
    INFO(chaos.text() << ": " << wrong);
    REQUIRE(wrong.empty());
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
