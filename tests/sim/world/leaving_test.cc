// Ranks that leave before others have received all of their messages.
#include <algorithm>

#include "catch_compat.h"
#include "sim/world/job.h"

using namespace tutti::internal;
using namespace tutti::internal::sim;

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
