// A rank dies at each step of its life, from the first call of the kernel to the last: every other rank ends, learns of
// the death if it could matter to it, and names only the dead rank.
#include <fmt/core.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "catch_compat.h"
#include "sanitizers.h"
#include "sim/world/job.h"

using namespace tutti::internal;
using namespace tutti::internal::sim;
using tutti::internal::test::kAnySanitizer;

namespace {

constexpr std::int64_t kJoinMs = 60'000;   // the init timeout of a rank in a JobWorld
constexpr std::int64_t kBoundMs = 10'000;  // for everything else
constexpr std::int64_t kWorkMs = 100;

struct Death {
  int ranks;
  int victim;
  std::uint64_t step;
  std::uint64_t seed;
};

// What is wrong with the ends of the other ranks; empty: nothing.
std::string what_is_wrong(JobWorld* job, int victim, bool done) {
  const RankRecord& dead = job->rank(victim);
  // The job knows of a death if the rank has authenticated itself before.
  const bool had_joined = dead.phase >= Phase::kGathering;
  if (!done) return "a rank waits without end";
  for (int rank = 0; rank < job->ranks(); ++rank) {
    const RankRecord& self = job->rank(rank);
    if (rank == victim) continue;
    const Status error = self.error();
    if (had_joined && self.returned_ms > kBoundMs) return fmt::format("rank {} took too long", rank);
    if (!error.is_ok() && error.code() != Code::kRemoteError && (had_joined || error.code() != Code::kTimeout)) {
      return fmt::format("rank {} has the wrong code", rank);
    }
    if (!error.is_ok() && dead.phase == Phase::kLeft) return fmt::format("rank {} fails, but nothing was wrong", rank);
    if (error.is_ok() && dead.phase <= Phase::kWatching) return fmt::format("rank {} has not heard", rank);
    // The last one: a rank that forwards an error is named before it.
    const std::vector<int> ranks = ranks_named(error.message());
    const bool blames_it = !ranks.empty() && ranks.back() == victim;
    if (!error.is_ok() && !blames_it) {
      // If the root service is gone, only its former address is known.
      const bool root_gone = victim == 0 && error.message().find("root service") != std::string::npos;
      if (!root_gone) return fmt::format("rank {} blames another one", rank);
    }
  }
  return {};
}

// False if the victim has ended before that step.
bool die_at(const Death& death, std::string* wrong) {
  WorldOptions options;
  options.seed = death.seed;
  JobWorld job(death.ranks, options,
               [&](int rank, Job*) { static_cast<void>(job.rank(rank).failure->await(Deadline::after_ms(kWorkMs))); });
  Process* const victim = job.rank(death.victim).process;
  World::at_step(victim, death.step, [&] { job.world().kill(victim); });
  const bool done = job.run(kJoinMs + kBoundMs);
  if (!victim->dead) return false;
  *wrong = what_is_wrong(&job, death.victim, done);
  // No rank could know of a job whose id was never made.
  if (job.rank(death.victim).phase == Phase::kStarting) wrong->clear();
  if (!wrong->empty()) *wrong += "\n" + job.report();
  if (!job.world().finish()) *wrong += "\na process without a network does not end\n" + job.world().report();
  return true;
}

// Every step of every victim. Stops after a few findings.
void all_deaths(int ranks, std::uint64_t seed) {
  constexpr int kMostFindings = 4;
  int findings = 0;
  std::uint64_t runs = 0;
  for (int victim = 0; victim < ranks && findings < kMostFindings; ++victim) {
    std::string wrong;
    for (std::uint64_t step = 1; die_at({ranks, victim, step, seed}, &wrong); ++step) {
      ++runs;
      if (wrong.empty()) continue;
      FAIL_CHECK("rank " << victim << " of " << ranks << " died at step " << step << ": " << wrong);
      if (++findings == kMostFindings) break;
    }
  }
  CHECK(runs > 0);
}

}  // namespace

TEST_CASE("deaths: at each step of each of 2 to 8 ranks") {
  const int ranks = GENERATE(2, 3, 5, 6, 8);
  if (kAnySanitizer && ranks > 3) return;
  all_deaths(ranks, 1);
}

// With any number of ranks and any seeds, from the environment.
TEST_CASE("deaths: any", "[.long]") {
  const char* const ranks = std::getenv("TUTTI_TEST_RANKS");
  const char* const first = std::getenv("TUTTI_TEST_FIRST_SEED");
  const char* const last = std::getenv("TUTTI_TEST_LAST_SEED");
  REQUIRE((ranks != nullptr && first != nullptr && last != nullptr));
  for (std::uint64_t seed = std::stoull(first); seed <= std::stoull(last); ++seed) all_deaths(std::stoi(ranks), seed);
}
