// Jobs with several faults, drawn from a seed: ranks die, stop for a while, are cut off for a while, and leave early,
// while the job joins, works in several communicators, and leaves.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "catch_compat.h"
#include "sanitizers.h"
#include "sim/world/job.h"

using namespace tutti::internal;
using namespace tutti::internal::sim;
using tutti::internal::test::kAnySanitizer;

namespace {

constexpr std::int64_t kJoinMs = 60'000;  // the init timeout
constexpr std::int64_t kBoundMs = kJoinMs + 30'000;
constexpr std::int64_t kMostHeldMs = 3000;

struct Plan {
  int ranks = 2;
  std::vector<int> deaths;  // ranks, once each
  std::set<int> stops;
  std::set<int> cuts;
  std::set<int> early;  // leave before the others
  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool holds() const { return !stops.empty() || !cuts.empty(); }
};

std::string list(const char* what, const auto& ranks) {
  std::string text;
  for (const int rank : ranks) text += fmt::format(" {}", rank);
  return text.empty() ? text : fmt::format("; {}{}", what, text);
}

std::string Plan::text() const {
  return fmt::format("{} ranks{}{}{}{}", ranks, list("die:", deaths), list("stop:", stops), list("are cut off:", cuts),
                     list("leave early:", early));
}

Plan make_plan(std::mt19937_64* random, int most_ranks) {
  const auto draw = [&](int below) { return static_cast<int>((*random)() % static_cast<std::uint64_t>(below)); };
  Plan plan;
  plan.ranks = 2 + draw(most_ranks - 1);
  for (int n = draw(4); n > 0; --n) {
    const int rank = draw(plan.ranks);
    const bool known = std::find(plan.deaths.begin(), plan.deaths.end(), rank) != plan.deaths.end();
    if (!known && static_cast<int>(plan.deaths.size()) < plan.ranks - 1) plan.deaths.push_back(rank);
  }
  if (draw(3) == 0) {
    for (int n = draw(3); n > 0; --n) plan.early.insert(draw(plan.ranks));
    return plan;
  }
  for (int n = draw(3); n > 0; --n) plan.stops.insert(draw(plan.ranks));
  for (int n = draw(3); n > 0; --n) plan.cuts.insert(draw(plan.ranks));
  return plan;
}

// The rank that an error names, by its number in the communicator that failed; -1: none. Ranks that forward an error
// are named before it.
int blamed(const Status& error) {
  const std::vector<int> ranks = ranks_named(error.message());
  return ranks.empty() ? -1 : ranks.back();
}

class Faults {
 public:
  Faults(std::uint64_t seed, int most_ranks);
  // Empty: nothing is wrong.
  std::string run();

 private:
  std::uint64_t draw(std::uint64_t below) { return random_() % below; }
  void arrange();
  void kill(int rank);
  void hold(int rank, const std::function<void(Process*)>& begin, const std::function<void(Process*)>& end);
  void work(int rank, Job* job);
  Status work_in_half(int rank, Job* job);
  [[nodiscard]] bool is_dead(int rank) { return job_->rank(rank).process->dead; }
  std::string judge(int rank);
  std::string judge_blame(const std::string& whose, const Status& error, int job_rank);

  std::mt19937_64 random_;
  const Plan plan_;
  std::vector<Status> half_errors_;       // by rank
  std::vector<std::set<int>> must_hear_;  // by rank: those that have died while both worked
  std::unique_ptr<JobWorld> job_;
};

Faults::Faults(std::uint64_t seed, int most_ranks)
    : random_(seed),
      plan_(make_plan(&random_, most_ranks)),
      half_errors_(static_cast<std::size_t>(plan_.ranks)),
      must_hear_(static_cast<std::size_t>(plan_.ranks)) {
  WorldOptions options;
  options.seed = seed;
  options.buffer_bytes = std::size_t{4096} << draw(5);
  options.delay_high_us = std::int64_t{50} << draw(8);
  options.delay_slow_us = options.delay_high_us * (1 + static_cast<std::int64_t>(draw(10)));
  job_ = std::make_unique<JobWorld>(plan_.ranks, options, [this](int rank, Job* job) { work(rank, job); });
  arrange();
}

void Faults::kill(int rank) {
  for (int other = 0; other < plan_.ranks; ++other) {
    const Phase phase = job_->rank(rank).phase;
    const bool both = phase > Phase::kStarting && std::max(phase, job_->rank(other).phase) <= Phase::kWatching;
    if (both && plan_.early.empty() && !is_dead(rank)) must_hear_[static_cast<std::size_t>(other)].insert(rank);
  }
  job_->world().kill(job_->rank(rank).process);
}

// From one of its steps on, for some seconds.
void Faults::hold(int rank, const std::function<void(Process*)>& begin, const std::function<void(Process*)>& end) {
  Process* const process = job_->rank(rank).process;
  const auto ms = static_cast<std::int64_t>(draw(kMostHeldMs));
  World::at_step(process, 1 + draw(300), [this, process, ms, begin, end] {
    if (job_->world().elapsed_ms() >= kMostHeldMs) return;  // the ranks leave
    begin(process);
    job_->world().after_ms(ms, [process, end] { end(process); });
  });
}

void Faults::arrange() {
  World& world = job_->world();
  for (const int rank : plan_.deaths) {
    if (draw(2) == 0) {
      World::at_step(job_->rank(rank).process, 1 + draw(300), [this, rank] { kill(rank); });
    } else {
      world.after_ms(static_cast<std::int64_t>(draw(600)), [this, rank] { kill(rank); });
    }
  }
  for (const int rank : plan_.stops) {
    hold(
        rank, [&world](Process* p) { world.stop(p); }, [&world](Process* p) { world.go_on(p); });
  }
  for (const int rank : plan_.cuts) {
    hold(
        rank, [&world](Process* p) { world.cut_off(p); }, [&world](Process* p) { world.reconnect(p); });
  }
}

// Of the even or of the odd ranks; each gathers there, beside the job's own communicator. Ranks leave when no rank is
// held any more: a rank that leaves waits less than a second to be heard.
Status Faults::work_in_half(int rank, Job* job) {
  std::vector<int> members;
  for (int other = rank % 2; other < plan_.ranks; other += 2) members.push_back(other);
  const auto failure = std::make_shared<FailureState>();
  auto half = job->tree->split(1 + static_cast<std::uint64_t>(rank % 2), members);
  if (!half.is_ok()) return half.status();
  Status status;
  if (*half != nullptr) {
    status = (*half)->all_gather("half", Deadline::after_ms(60'000)).status();
    if (status.is_ok()) status = (*half)->watch(failure, {});
  }
  const std::int64_t end_ms = plan_.holds() ? 2 * kMostHeldMs : 400;
  const std::int64_t left_ms = end_ms - job_->world().elapsed_ms();
  if (!plan_.early.contains(rank) && left_ms > 0) {
    static_cast<void>(job_->rank(rank).failure->await(Deadline::after_ms(left_ms)));
  }
  if (*half == nullptr) return status;
  if (status.is_ok()) {
    static_cast<void>((*half)->finish(1000));
    status = failure->status();
  }
  (*half)->leave();
  return status;
}

void Faults::work(int rank, Job* job) {
  if (job->tree != nullptr) half_errors_[static_cast<std::size_t>(rank)] = work_in_half(rank, job);
}

// A rank that an error names as dead must be dead, and without a death no rank fails. After one, ranks may also fail
// because others that have failed leave.
std::string Faults::judge_blame(const std::string& whose, const Status& error, int job_rank) {
  if (error.is_ok()) return {};
  const bool any_death =
      std::any_of(plan_.deaths.begin(), plan_.deaths.end(), [this](int rank) { return is_dead(rank); });
  const bool dead = job_rank >= 0 && job_rank < plan_.ranks && is_dead(job_rank);
  const bool says_so = error.message().find("died") != std::string::npos;
  if (any_death && (dead || !says_so)) return {};
  return fmt::format("{} blames one that lives: {}", whose, error.message());
}

std::string Faults::judge(int rank) {
  // Beyond the init timeout each rank gives up on its own.
  if (is_dead(rank) || job_->rank(rank).returned_ms > kJoinMs) return {};
  const Status error = job_->rank(rank).error();
  const Status& half_error = half_errors_[static_cast<std::size_t>(rank)];
  std::string wrong = judge_blame(fmt::format("rank {}", rank), error, blamed(error));
  // A rank that looks for the others when all have failed and left may find none of them.
  if (wrong.empty() && error.is_ok() && !plan_.holds()) {
    const int in_half = blamed(half_error);
    const int job_rank = in_half < 0 ? -1 : 2 * in_half + rank % 2;
    wrong = judge_blame(fmt::format("the half of rank {}", rank), half_error, job_rank);
  }
  const std::set<int>& deaths = must_hear_[static_cast<std::size_t>(rank)];
  if (wrong.empty() && error.is_ok() && !deaths.empty()) {
    wrong = fmt::format("rank {} has not heard that rank {} has died", rank, *deaths.begin());
  }
  return wrong;
}

std::string Faults::run() {
  const bool done = job_->run(kBoundMs);
  std::string wrong = done ? "" : "a rank waits without end";
  for (int rank = 0; rank < plan_.ranks && wrong.empty(); ++rank) wrong = judge(rank);
  if (!wrong.empty()) wrong += "\n" + plan_.text() + "\n" + job_->report();
  if (!job_->world().finish()) wrong += "\na process without a network does not end\n" + job_->world().report();
  return wrong;
}

void run_seeds(std::uint64_t first, std::uint64_t last, int most_ranks) {
  constexpr int kMostFindings = 4;
  int findings = 0;
  for (std::uint64_t seed = first; seed <= last && findings < kMostFindings; ++seed) {
    const std::string wrong = Faults(seed, most_ranks).run();
    if (wrong.empty()) continue;
    FAIL_CHECK("seed " << seed << " with at most " << most_ranks << " ranks: " << wrong);
    ++findings;
  }
  CHECK(findings == 0);
}

}  // namespace

TEST_CASE("faults: several at a time") {
  run_seeds(1, 2000 / (kAnySanitizer ? 20 : 1), 8);
  run_seeds(1, 60 / (kAnySanitizer ? 20 : 1), 40);
}

// With any number of ranks and any seeds, from the environment.
TEST_CASE("faults: any", "[.long]") {
  const char* const ranks = std::getenv("TUTTI_TEST_RANKS");
  const char* const first = std::getenv("TUTTI_TEST_FIRST_SEED");
  const char* const last = std::getenv("TUTTI_TEST_LAST_SEED");
  REQUIRE((ranks != nullptr && first != nullptr && last != nullptr));
  run_seeds(std::stoull(first), std::stoull(last), std::stoi(ranks));
}
