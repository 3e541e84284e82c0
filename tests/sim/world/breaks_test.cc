// Connections of the control tree that break although both ranks live: they are made anew, and no rank counts as dead,
// if the job asks for that. In the simulated world: see world.h.
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "catch_compat.h"
#include "sanitizers.h"
#include "sim/world/family.h"

using namespace tutti::internal;
using namespace tutti::internal::sim;
using tutti::internal::test::kAnySanitizer;

namespace {

constexpr unsigned kSeeds = kAnySanitizer ? 4 : 150;
constexpr bool kRemakes = true;

std::vector<int> all_of(int ranks) {
  return all_but(ranks, {});
}

void expect_unharmed(Family* job) {
  for (const int rank : job->members()) {
    INFO("rank " << rank);
    CHECK(job->at(rank).part_failure->status().message() == "");
    CHECK(job->at(rank).failure->status().message() == "");
  }
}

}  // namespace

TEST_CASE("without the setting a broken connection counts as a death") {
  Family job(1, 3, all_of(3));
  job.world().break_connections(job.at(1).process);
  CHECK(job.eventually([&] { return job.at(0).failure->failed() || job.at(1).failure->failed(); }, 1000));
}

TEST_CASE("broken connections are made anew, and a later death is heard of by all") {
  const unsigned seed = GENERATE(range(0U, kSeeds));
  std::mt19937 random(seed);
  const int ranks = 2 + static_cast<int>(random() % 18);
  const int breaks = 1 + static_cast<int>(random() % 4);
  const int victim = static_cast<int>(random() % static_cast<unsigned>(ranks));
  INFO("seed " << seed << ", " << ranks << " ranks, " << breaks << " breaks, victim " << victim);
  Family job(seed, ranks, all_of(ranks), false, kRemakes);
  for (int i = 0; i < breaks; ++i) {
    const bool of_all = random() % 4 == 0;
    for (int rank = 0; rank < ranks; ++rank) {
      if (of_all || random() % 4 == 0) job.world().break_connections(job.at(rank).process);
    }
    job.world().run_for(static_cast<int>(random() % 3) * 100);
  }
  job.world().run_for(20'000);
  expect_unharmed(&job);
  job.kill(victim);
  job.expect_heard(victim, kMissedMs);
}

TEST_CASE("an agreement ends with all ranks although connections break") {
  const unsigned seed = GENERATE(range(0U, kSeeds));
  std::mt19937 random(seed);
  const int ranks = 2 + static_cast<int>(random() % 12);
  INFO("seed " << seed << ", " << ranks << " ranks");
  Family job(seed, ranks, all_of(ranks), false, kRemakes);
  std::map<int, Result<Agreement>> results;
  for (int rank = 0; rank < ranks; ++rank) {
    Rank* const own = &job.at(rank);
    job.world().start_thread(own->process, [own, rank, &results] {
      auto result = own->part->agree({"agree", {}, ~(std::uint64_t{1} << rank)}, Deadline::after_ms(kLongMs), {});
      results.insert_or_assign(rank, std::move(result));
    });
    // In the middle of the calls, at a step of the process.
    if (random() % 3 != 0) continue;
    Process* const process = own->process;
    World::at_step(process, 1 + random() % 12, [&job, process] { job.world().break_connections(process); });
  }
  REQUIRE(job.eventually([&] { return results.size() == static_cast<std::size_t>(ranks); }, kLongMs));
  for (auto& [rank, result] : results) {
    INFO("rank " << rank);
    REQUIRE(result.status().message() == "");
    CHECK(result->failed.empty());
    CHECK(result->flags == ~((std::uint64_t{1} << ranks) - 1));
  }
  job.world().run_for(5000);
  expect_unharmed(&job);
}

TEST_CASE("a death beside broken connections is noticed within a second") {
  const unsigned seed = GENERATE(range(0U, kSeeds));
  std::mt19937 random(seed);
  const int ranks = 3 + static_cast<int>(random() % 12);
  const int victim = static_cast<int>(random() % static_cast<unsigned>(ranks));
  const int broken = (victim + 1 + static_cast<int>(random() % static_cast<unsigned>(ranks - 1))) % ranks;
  INFO("seed " << seed << ", " << ranks << " ranks, victim " << victim << ", broken " << broken);
  Family job(seed, ranks, all_of(ranks), false, kRemakes);
  job.world().break_connections(job.at(broken).process);
  job.world().run_for(static_cast<int>(random() % 2) * 3);
  job.kill(victim);
  job.expect_heard(victim, 2 * kMissedMs);
  for (const int rank : job.living_members()) {
    CHECK(contains(job.at(rank).part_failure->status(), job.name_of(victim) + " (host "));
  }
}

TEST_CASE("a rank that dies while it makes its connection anew is noticed, although the ranks below it move as well") {
  const unsigned seed = GENERATE(range(0U, kAnySanitizer ? 2U : 20U));
  for (std::uint64_t step = 1; step < 60; ++step) {
    Family job(seed, 9, all_of(9), false, kRemakes);  // ranks 5 to 8 are below rank 1
    Process* const victim = job.at(1).process;
    World::at_step(victim, step, [&] { job.kill(1); });
    job.world().break_connections(job.at(0).process);
    job.world().run_for(200);
    if (!victim->dead) break;
    INFO("seed " << seed << ", step " << step);
    // If it has answered a question just before, it is asked again after a second.
    job.expect_heard(1, kMissedMs + 500);
  }
}
