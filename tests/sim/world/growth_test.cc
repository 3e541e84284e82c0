// The messages that ranks send while they join, leave and die grow as expected with their number: by counts, in the
// simulated world.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "catch_compat.h"
#include "sanitizers.h"
#include "sim/world/job.h"

using namespace tutti::internal;
using namespace tutti::internal::sim;

namespace {

// A sanitizer, which makes everything many times slower, needs no more to see every way through the code.
constexpr int kMany = tutti::internal::test::kAnySanitizer ? 96 : 256;

WorldOptions seeded() {
  WorldOptions options;
  options.seed = 11;
  return options;
}

// The traffic of the rank that sent most, of all ranks except rank 0, which serves as root for the others.
struct Most {
  std::uint64_t sends = 0;
  std::uint64_t bytes = 0;
};

std::vector<Traffic> traffic_of(JobWorld& job) {
  std::vector<Traffic> result;
  for (int rank = 0; rank < job.ranks(); ++rank) result.push_back(job.rank(rank).process->traffic);
  return result;
}

Most most_since(JobWorld& job, const std::vector<Traffic>& before) {
  Most most;
  for (int rank = 1; rank < job.ranks(); ++rank) {
    const Traffic& now = job.rank(rank).process->traffic;
    most.sends = std::max(most.sends, now.sends - before[static_cast<std::size_t>(rank)].sends);
    most.bytes = std::max(most.bytes, now.bytes - before[static_cast<std::size_t>(rank)].bytes);
  }
  return most;
}

// What all ranks, which wait at `begin`, send until each has added 1 to `done` and waits at `end`.
Most most_between(JobWorld* job, Gate* begin, Gate* end, const int& done) {
  REQUIRE(job->run_to(Phase::kWatching, 60'000));
  job->world().run_for(2000);
  const std::vector<Traffic> before = traffic_of(*job);
  job->world().open(begin);
  job->world().run_for(2000);
  CHECK(done == job->ranks());
  const Most most = most_since(*job, before);
  job->world().open(end);
  CHECK(job->run(60'000));
  CHECK(job->world().finish());
  return most;
}

// For a job whose ranks have all watched their trees for a while before they leave.
Most leaving(int ranks) {
  Gate all_watch;
  JobWorld* world = nullptr;
  JobWorld job(ranks, seeded(), [&](int, Job*) { world->world().pass(all_watch); });
  world = &job;
  REQUIRE(job.run_to(Phase::kWatching, 60'000));
  job.world().run_for(2000);
  const std::vector<Traffic> before = traffic_of(job);
  job.world().open(&all_watch);
  const bool done = job.run(60'000);
  INFO(job.report());
  REQUIRE(done);
  for (int rank = 0; rank < ranks; ++rank) REQUIRE(job.rank(rank).all_left);
  const Most most = most_since(job, before);
  CHECK(job.world().finish());
  return most;
}

// For a job in which rank 1 dies, which has four children: until all ranks know and the tree is complete again.
Most dying(int ranks) {
  Gate never;
  JobWorld* world = nullptr;
  JobWorld job(ranks, seeded(), [&](int, Job*) { world->world().pass(never); });
  world = &job;
  REQUIRE(job.run_to(Phase::kWatching, 60'000));
  job.world().run_for(2000);
  const std::vector<Traffic> before = traffic_of(job);
  job.world().kill(job.rank(1).process);
  job.world().run_for(5000);
  for (int rank = 0; rank < ranks; ++rank) REQUIRE((rank == 1 || job.rank(rank).failure->failed()));
  const Most most = most_since(job, before);
  CHECK(job.world().finish());
  return most;
}

// For a job whose ranks leave communicators of eight that they have split off.
Most leaving_groups(int ranks) {
  constexpr int kMembers = 8;
  Gate all_watch;
  Gate all_left;
  int left = 0;
  JobWorld* world = nullptr;
  JobWorld job(ranks, seeded(), [&](int rank, Job* own) {
    std::vector<int> members;
    for (int i = 0; i < kMembers; ++i) members.push_back(rank / kMembers * kMembers + i);
    auto group = own->tree->split(static_cast<std::uint64_t>(members.front()) + 1, members);
    if (!group.is_ok() || !(*group)->watch(std::make_shared<FailureState>(), {}).is_ok()) return;
    world->world().pass(all_watch);
    if ((*group)->finish(10'000)) ++left;
    (*group)->leave();
    world->world().pass(all_left);
  });
  world = &job;
  return most_between(&job, &all_watch, &all_left, left);
}

// The total traffic of a job while its ranks make communicators of eight that gather, each of which fails.
Traffic failing_groups(int ranks) {
  constexpr int kMembers = 8;
  Gate all_watch;
  Gate never;
  int failed = 0;
  JobWorld* world = nullptr;
  JobWorld job(ranks, seeded(), [&](int rank, Job* own) {
    std::vector<int> members;
    for (int i = 0; i < kMembers; ++i) members.push_back(rank / kMembers * kMembers + i);
    world->world().pass(all_watch);
    auto group = own->tree->split(static_cast<std::uint64_t>(members.front()) + 1, members);
    const auto failure = std::make_shared<FailureState>();
    if (!group.is_ok() || !(*group)->all_gather("part", Deadline::after_ms(10'000)).is_ok()) return;
    if (!(*group)->watch(failure, {}).is_ok()) return;
    if (rank == members.back()) (*group)->announce_failure(Status::aborted("the end"));
    failed += static_cast<int>(rank == members.back() || failure->await(Deadline::after_ms(10'000)));
    world->world().pass(never);
  });
  world = &job;
  REQUIRE(job.run_to(Phase::kWatching, 60'000));
  job.world().run_for(2000);
  const Traffic before = job.world().traffic();
  job.world().open(&all_watch);
  job.world().run_for(2000);
  CHECK(failed == ranks);
  const Traffic after = job.world().traffic();
  CHECK(job.world().finish());
  return {after.sends - before.sends, after.bytes - before.bytes, 0};
}

// For one agreement of all ranks.
Most agreeing(int ranks) {
  Gate begin;
  Gate end;
  int agreed = 0;
  JobWorld* world = nullptr;
  JobWorld job(ranks, seeded(), [&](int rank, Job* own) {
    world->world().pass(begin);
    const std::uint64_t bit = std::uint64_t{1} << (rank % 16);
    auto result = own->tree->agree({"agree", {}, ~bit, "8 bytes."}, Deadline::after_ms(10'000), {});
    agreed += static_cast<int>(result.is_ok() && result->flags == ~std::uint64_t{0xffff} && result->failed.empty());
    world->world().pass(end);
  });
  world = &job;
  return most_between(&job, &begin, &end, agreed);
}

// Up to the end of the first all-gather.
Most joining(int ranks) {
  JobWorld job(ranks, seeded());
  const std::vector<Traffic> before = traffic_of(job);
  REQUIRE(job.run_to(Phase::kWatching, 60'000));
  const Most most = most_since(job, before);
  CHECK(job.world().finish());
  return most;
}

}  // namespace

TEST_CASE("growth: of ranks that join, each sends a table to its children, in a bounded number of messages") {
  const int ranks = GENERATE(64, kMany);
  const Most most = joining(ranks);
  INFO(ranks << " ranks: " << most.sends << " messages, " << most.bytes << " bytes");
  CHECK(most.sends <= 40);
  // At most 64 bytes of each rank to each of four children, and the handshakes.
  CHECK(most.bytes <= 2048 + 4 * 64 * static_cast<std::uint64_t>(ranks));
}

TEST_CASE("growth: the root service polls no rank that waits for the others to join") {
  const int ranks = GENERATE(64, kMany);
  JobWorld job(ranks, seeded());
  REQUIRE(job.run_to(Phase::kWatching, 60'000));
  const std::uint64_t polled = job.rank(0).process->traffic.polled;
  INFO(ranks << " ranks: " << polled << " descriptors");
  // Connections during authentication, at most 256, are each polled; connections of waiting ranks are not.
  CHECK(polled <= (60 + static_cast<std::uint64_t>(std::min(ranks, 256))) * static_cast<std::uint64_t>(ranks));
  CHECK(job.world().finish());
}

TEST_CASE("growth: the death of a rank costs each other one a bounded number of messages and bytes") {
  const int ranks = GENERATE(16, 64, kMany);
  const Most most = dying(ranks);
  INFO(ranks << " ranks: " << most.sends << " messages, " << most.bytes << " bytes");
  CHECK(most.sends <= 32);
  CHECK(most.bytes <= 1500);
}

TEST_CASE("growth: a communicator's leave notices pass its members and those between them, and no other rank") {
  const int ranks = GENERATE(64, kMany);
  const Most most = leaving_groups(ranks);
  INFO(ranks << " ranks: " << most.sends << " messages, " << most.bytes << " bytes");
  CHECK(most.sends <= 80);
  CHECK(most.bytes <= 10'000);
}

TEST_CASE("growth: parts and failures of small communicators pass their members and those between them") {
  const int ranks = GENERATE(64, kMany);
  const Traffic all = failing_groups(ranks);
  INFO(ranks << " ranks: " << all.sends << " messages, " << all.bytes << " bytes");
  // Of eight neighbouring ranks the farthest are about 2 log4(n) connections apart. Sent to all ranks, each of n/8
  // communicators would need a message over each of n - 1 connections.
  CHECK(all.sends <= 15 * static_cast<std::uint64_t>(ranks));
  CHECK(all.bytes <= 1200 * static_cast<std::uint64_t>(ranks));
}

TEST_CASE("growth: ranks that leave together send a bounded number of messages and bytes, however many they are") {
  const int ranks = GENERATE(16, 64, kMany);
  const Most most = leaving(ranks);
  INFO(ranks << " ranks: " << most.sends << " messages, " << most.bytes << " bytes");
  // To each of five neighbours: that all have left, and that this rank leaves the job; before that some ranges of
  // ranks.
  CHECK(most.sends <= 24);
  CHECK(most.bytes <= 1024);
}

TEST_CASE("growth: in an agreement of all ranks each sends a bounded number of messages, with a few ranges of ranks") {
  const int ranks = GENERATE(16, 64, kMany);
  const Most most = agreeing(ranks);
  INFO(ranks << " ranks: " << most.sends << " messages, " << most.bytes << " bytes");
  // One to the parent, one to each of four children.
  CHECK(most.sends <= 5);
  // The ranks below a rank are one range for each level of the tree, of 8 bytes: 443 bytes with 16 ranks, 475 with
  // 4096.
  CHECK(most.bytes <= 480);
}
