// Programs that pass one id to disjoint groups of ranks: both groups hear of it, though no frame of one is meant for a
// member of the other. In the simulated world: see world.h.
#include <cstddef>
#include <vector>

#include "catch_compat.h"
#include "sim/world/family.h"

using namespace tutti::internal;
using namespace tutti::internal::sim;

namespace {

bool clashes(Family* job, const Group& group) {
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const Status failure = job->at(group.members[i]).part_failure->status();
    if (!contains(group.made[i], "with the same id") && !contains(failure, "with the same id")) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("two groups with one id hear of each other though the rank that the claim was on its way through has died") {
  Family job(GENERATE(range(0U, 20U)), 87, {});
  Group first{{85, 86}, {}};  // below rank 21, which is below rank 5
  Group second{{17, 18}, {}};
  job.stop(5);
  job.split_off(&first, first.members);
  job.world().run_for(50);
  job.kill(5);
  REQUIRE(job.eventually([&] { return first.is_made(); }, kMissedMs));
  job.split_off(&second, second.members);
  CHECK(job.eventually([&] { return clashes(&job, first) && clashes(&job, second); }, kMissedMs));
}

TEST_CASE("a group hears that another one has its id also through members of that one which have failed") {
  Family job(GENERATE(range(0U, 20U)), 34, {});
  Group first{{1, 2}, {}};
  Group second{{25, 29}, {}};  // below ranks 6 and 7, which are below rank 1
  job.split_off(&first, first.members);
  REQUIRE(job.eventually([&] { return first.is_made(); }));
  job.have(2, [](Rank* self) { self->part->announce_failure(Status::aborted("enough")); });
  REQUIRE(job.eventually([&] { return job.at(1).part_failure->failed(); }));
  job.split_off(&second, second.members);
  CHECK(job.eventually([&] { return clashes(&job, second); }, kMissedMs));
}

TEST_CASE("members that come late hear that another group has their id") {
  Family job(GENERATE(range(0U, 20U)), 10, {});
  Group first{{0, 1}, {}};
  Group second{{2, 3, 4, 5}, {}};
  job.split_off(&first, first.members);
  REQUIRE(job.eventually([&] { return first.is_made(); }));
  const auto [early, late] = GENERATE(table<std::vector<int>, std::vector<int>>({{{3, 5}, {2, 4}}, {{2}, {3, 4, 5}}}));
  job.split_off(&second, early);
  job.world().run_for(300);
  job.split_off(&second, late);
  CHECK(job.eventually([&] { return clashes(&job, second); }, kMissedMs));
}
