// Ranks that leave before others have received all of their messages.
#include <algorithm>

#include "catch_compat.h"
#include "sanitizers.h"
#include "sim/world/family.h"
#include "sim/world/job.h"

using namespace tutti::internal;
using namespace tutti::internal::sim;
using tutti::internal::test::kAnySanitizer;

namespace {

void sleep_until_ms(World* world, std::int64_t ms) {
  const FailureState never;
  static_cast<void>(never.await(Deadline::after_ms(std::max<std::int64_t>(0, ms - world->elapsed_ms()))));
}

}  // namespace

// Rank 3 gathers with rank 1 and leaves, while it is cut off. Its messages are in flight to rank 0, which has left when
// the network is back.
TEST_CASE("leaving: a rank's part in an all-gather comes before its leave notice, also by another parent") {
  WorldOptions options;
  options.seed = GENERATE(1, 2, 3, 4, 5, 6);
  Status gathered[5];
  JobWorld job(5, options, [&](int rank, Job* mine) {
    World& world = job.world();
    if (rank != 1 && rank != 3) return sleep_until_ms(&world, 200);
    auto part = mine->tree->split(7, {1, 3});
    gathered[rank] = part.status();
    if (!part.is_ok()) return;
    sleep_until_ms(&world, rank == 3 ? 100 : 0);
    if (rank == 3) world.cut_off(world.self());
    gathered[rank] = (*part)->all_gather("part", Deadline::after_ms(30'000)).status();
    if (gathered[rank].is_ok()) gathered[rank] = (*part)->watch(std::make_shared<FailureState>(), {});
    if (gathered[rank].is_ok()) static_cast<void>((*part)->finish(1000));
    (*part)->leave();
    sleep_until_ms(&world, 6000);
  });
  job.world().after_ms(3000, [&] { job.world().reconnect(job.rank(3).process); });
  const bool done = job.run(20'000);
  INFO(job.report());
  REQUIRE(done);
  for (const int rank : {1, 3}) {
    INFO("rank " << rank << ": " << gathered[rank].message());
    CHECK(gathered[rank].is_ok());
    CHECK(job.rank(rank).error().is_ok());
  }
  CHECK(job.world().finish());
}

TEST_CASE("leaving: a rank that is stopped while it says so does not make others take a living rank for dead") {
  // Rank 1 has told some of its neighbours, before its n-th step. Those find other parents, and tell them that it has
  // left. So it hears that from other ranks when it goes on.
  const unsigned step = GENERATE(range(1U, 60U));
  const unsigned seed = GENERATE(range(0U, kAnySanitizer ? 1U : 5U));
  INFO("seed " << seed << ", step " << step);
  Family job(seed, 26, {});
  Process* const process = job.at(1).process;
  World::at_step(process, step, [&job, process] {
    job.stop(1);
    job.world().after_ms(100, [&job, process] { job.world().go_on(process); });
  });
  job.world().start_thread(process, [&job] { job.at(1).whole->leave(); });
  job.world().run_for(1000);
  for (const int rank : all_but(26, {1})) {
    INFO("rank " << rank);
    CHECK(job.at(rank).failure->departed(1));
    CHECK(job.at(rank).failure->status().message() == "");
  }
}
