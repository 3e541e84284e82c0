// Ranks that die or leave while others continue: the others find new neighbours in the tree, and receive each other's
// messages as before. In the simulated world: see world.h.
#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "catch_compat.h"
#include "control/tree_shape.h"
#include "sanitizers.h"
#include "sim/world/family.h"

using namespace tutti::internal;
using namespace tutti::internal::sim;
using tutti::internal::test::kAnySanitizer;

namespace {

constexpr unsigned kSeeds = kAnySanitizer ? 4 : 200;

}  // namespace

TEST_CASE("when a rank between others has been killed, all survivors hear of the next death") {
  const unsigned seed = GENERATE(range(0U, kSeeds));
  std::mt19937 random(seed);
  const int ranks = 6 + static_cast<int>(random() % 16);
  // Ranks with others below them die first; the last victim may be any other.
  const int inner = (ranks - 2) / 4 + 1;
  std::vector<int> first = {static_cast<int>(random() % static_cast<unsigned>(inner))};
  if (random() % 3 == 0 && inner > 1) first.push_back((first[0] + 1) % inner);
  int last = 0;
  do {
    last = static_cast<int>(random() % static_cast<unsigned>(ranks));
  } while (is_in(first, last));
  // A rank that dies at the same time as its only neighbour may die unseen.
  const bool orphan = last > 0 && is_in(first, tree_parent(last));
  const int pause_ms = static_cast<int>(random() % 3) * 60;
  INFO("seed " << seed << ": " << ranks << " ranks, first " << first[0] << " of " << first.size() << ", then " << last
               << " after " << pause_ms << " ms");
  Family job(seed, ranks, all_but(ranks, first));
  for (const int rank : first) job.kill(rank);
  job.world().run_for(pause_ms);
  for (const int rank : job.members()) CHECK_FALSE(job.at(rank).part_failure->failed());
  job.kill(last);
  job.expect_heard(last, orphan ? kMissedMs : kHeardMs);
}

TEST_CASE("the deaths of ranks at the same moment, one below the other, are noticed within a second") {
  // Rank 0 and a leaf below it; the first two ranks, of which the second is the next root; two levels and a leaf.
  const auto [ranks, above, leaf] = GENERATE(table<int, std::vector<int>, int>({{6, {0}, 4},
                                                                                {5, {0}, 4},
                                                                                {6, {0}, 2},
                                                                                {6, {0}, 1},
                                                                                {9, {0, 1}, 7},
                                                                                {9, {0, 1}, 2},
                                                                                {22, {0, 1, 5}, 21},
                                                                                {12, {0, 1, 2, 3}, 4}}));
  const unsigned seed = GENERATE(range(0U, 10U));
  INFO(ranks << " ranks, rank " << leaf << " dies with " << above.size() << " above it; seed " << seed);
  Family job(seed, ranks, all_but(ranks, above));
  for (const int rank : above) job.kill(rank);
  job.kill(leaf);
  job.expect_heard(leaf, kMissedMs);
}

TEST_CASE("a rank that is stopped while its parent dies is waited for") {
  const bool two_networks = GENERATE(false, true);
  Family job(GENERATE(range(0U, 10U)), 9, all_but(9, {1}), two_networks);  // rank 7 is below rank 1
  job.stop(7);
  job.kill(1);
  job.world().run_for(60'000);
  for (const int rank : job.members()) {
    INFO("rank " << rank);
    CHECK(job.at(rank).part_failure->status().message() == "");
  }
  job.world().go_on(job.at(7).process);
  job.have(7, [](Rank* self) { self->part->leave(); });
  const int left = 6;
  for (const int rank : job.members()) {
    INFO("rank " << rank << " is to hear that rank 7 has left");
    if (rank != 7) CHECK(job.eventually([&] { return job.at(rank).part_failure->departed(left); }));
  }
}

TEST_CASE("a living rank is waited for though a filter refuses its first address and a packet to the other is lost") {
  Family job(GENERATE(range(0U, 10U)), 9, all_but(9, {1}), true);  // rank 7 is below rank 1
  job.world().filter(job.at(7).process);
  job.stop(7);
  job.kill(1);
  job.world().run_for(20'000);
  for (const int rank : job.members()) {
    INFO("rank " << rank);
    CHECK(job.at(rank).part_failure->status().message() == "");
  }
}

TEST_CASE("messages sent while the tree has a gap reach all ranks when it is closed") {
  const unsigned seed = GENERATE(range(0U, kSeeds));
  std::mt19937 random(seed);
  const int ranks = 9 + static_cast<int>(random() % 13);
  const int victim = static_cast<int>(random() % 3);
  const int origin = ranks - 1 - static_cast<int>(random() % 3);
  INFO("seed " << seed << ": " << ranks << " ranks, without " << victim << ", rank " << origin << " aborts");
  Family job(seed, ranks, all_but(ranks, {victim}));
  job.kill(victim);
  if (seed % 2 == 0) REQUIRE(job.eventually([&] { return job.at(origin).failure->failed(); }));
  job.have(origin, [](Rank* self) { self->part->announce_failure(Status::aborted("enough")); });
  const std::int64_t until_ms = job.world().elapsed_ms() + kHeardMs;
  for (const int rank : job.members()) {
    if (rank == origin) continue;
    INFO("rank " << rank);
    REQUIRE(job.eventually([&] { return job.at(rank).part_failure->failed(); }, until_ms - job.world().elapsed_ms()));
    CHECK(job.at(rank).part_failure->status().message() == job.name_of(origin) + ": enough");
  }
}

TEST_CASE("all ranks hear of ranks that leave one after the other, and of a later failure") {
  const unsigned seed = GENERATE(range(0U, kSeeds));
  std::mt19937 random(seed);
  const int ranks = 6 + static_cast<int>(random() % 20);
  const bool root_too = random() % 2 == 0;
  Family job(seed, ranks, {});
  // All ranks with others below them, in any order, and one without.
  std::vector<int> leaving;
  for (int rank = root_too ? 0 : 1; rank * 4 + 1 < ranks; ++rank) leaving.push_back(rank);
  std::shuffle(leaving.begin(), leaving.end(), random);
  leaving.push_back(ranks - 2);
  for (const int rank : leaving) {
    job.have(rank, [](Rank* self) { self->whole->leave(); });
    if (random() % 2 == 0) job.world().run_for(random() % 30);
  }
  INFO("seed " << seed << ", " << ranks << " ranks, " << leaving.size() << " leave");
  for (const int rank : all_but(ranks, leaving)) {
    for (const int other : leaving) {
      INFO("rank " << rank << " is to hear that " << other << " has left");
      REQUIRE(job.eventually([&] { return job.at(rank).failure->departed(other); }, kHeardMs));
    }
    CHECK_FALSE(job.at(rank).failure->failed());
  }
  job.have(ranks - 1, [](Rank* self) { self->whole->announce_failure(Status::aborted("enough")); });
  leaving.push_back(ranks - 1);
  for (const int rank : all_but(ranks, leaving)) {
    INFO("rank " << rank);
    REQUIRE(job.eventually([&] { return job.at(rank).failure->failed(); }, kHeardMs));
    CHECK(job.at(rank).failure->status().message() == "rank " + std::to_string(ranks - 1) + ": enough");
  }
}

TEST_CASE("an all-gather continues after the death of a rank that has no part in it") {
  const int victim = GENERATE(0, 1, 2);
  const unsigned seed = GENERATE(range(0U, 20U));
  constexpr int kRanks = 21;
  INFO("seed " << seed);
  Family job(seed, kRanks, all_but(kRanks, {victim}));
  std::vector<Status> statuses(kRanks);
  int done = 0;
  std::vector<int> same(job.members().size());
  std::iota(same.begin(), same.end(), 0);
  for (const int rank : job.members()) {
    job.world().start_thread(job.at(rank).process, [&, rank] {
      auto tree = job.at(rank).part->split(8, same);
      Status& status = statuses[static_cast<std::size_t>(rank)];
      status = tree.status();
      for (int round = 0; status.is_ok() && round < 20; ++round) {
        auto all = (*tree)->all_gather(std::to_string(round), Deadline::after_ms(kLongMs));
        status = all.status();
        for (std::size_t i = 0; status.is_ok() && i < all->size(); ++i) {
          if ((*all)[i] != std::to_string(round)) status = Status::internal("wrong part");
        }
      }
      if (++done == static_cast<int>(job.members().size())) return;
      static_cast<void>(job.at(rank).part_failure->await(Deadline::after_ms(kLongMs)));  // no rank leaves before
    });
  }
  job.world().after_ms(static_cast<std::int64_t>(seed % 5), [&] { job.kill(victim); });
  CHECK(job.eventually([&] { return done == static_cast<int>(job.members().size()); }));
  for (const Status& status : statuses) CHECK(status.message() == "");
}

TEST_CASE("the death of a rank together with its only neighbour is noticed") {
  const bool two_networks = GENERATE(false, true);
  // Rank 7 is below rank 1 and has no other neighbour.
  Family job(GENERATE(range(0U, 20U)), 9, all_but(9, {1}), two_networks);
  job.stop(1);
  job.kill(7);
  job.world().run_for(50);
  job.kill(1);
  job.expect_heard(7, kMissedMs);
}

TEST_CASE("unseen deaths, one below the other, are noticed at the same time") {
  Family job(GENERATE(range(0U, 20U)), 22, all_but(22, {1, 5}));  // rank 21 is below rank 5, which is below rank 1
  job.stop(1);
  job.stop(5);
  job.kill(21);
  job.world().run_for(50);
  job.kill(5);
  job.world().run_for(50);
  job.kill(1);
  job.expect_heard(21, kMissedMs);
}

TEST_CASE("all ranks hear of ranks that leave at the same moment, one below the other") {
  const unsigned seed = GENERATE(range(0U, kSeeds));
  std::mt19937 random(seed);
  const int ranks = 4 + static_cast<int>(random() % 20);
  Family job(seed, ranks, {});
  // A rank and those above it, or the first ones.
  std::set<int> leaving;
  if (seed % 3 == 0) {
    leaving = {0, 1};
  } else {
    for (int rank = 1 + static_cast<int>(random() % static_cast<unsigned>(ranks - 1)); rank > 0;) {
      leaving.insert(rank);
      rank = tree_parent(rank);
    }
    if (seed % 3 == 1) leaving.insert(0);
  }
  std::size_t left = 0;
  for (const int rank : leaving) {
    const auto pause_ms = static_cast<std::int64_t>(random() % 3 == 0 ? random() % 12 : 0);
    job.world().after_ms(pause_ms, [&job, &left, rank] {
      job.world().start_thread(job.at(rank).process, [&job, &left, rank] {
        job.at(rank).whole->leave();
        ++left;
      });
    });
  }
  INFO("seed " << seed << ", " << ranks << " ranks, " << leaving.size() << " leave, " << *leaving.rbegin()
               << " the last");
  CHECK(job.eventually([&] { return left == leaving.size(); }, 1000));
  for (const int rank : all_but(ranks, {leaving.begin(), leaving.end()})) {
    for (const int other : leaving) {
      INFO("rank " << rank << " is to hear that " << other << " has left");
      REQUIRE(job.eventually([&] { return job.at(rank).failure->departed(other); }, 2000));
    }
    CHECK_FALSE(job.at(rank).failure->failed());
  }
}

TEST_CASE("a non-member keeps the last messages of members below it that have left") {
  // Rank 21 is below rank 5, which is below rank 1. Its messages are lost with rank 1, except those that rank 5 keeps.
  Family job(GENERATE(range(0U, 20U)), 26, all_but(26, {1, 5, 22, 23, 24}));
  job.stop(1);
  job.have(21, [](Rank* self) {
    self->part->announce_failure(Status::aborted("enough"));
    self->part->leave();
    self->whole->leave();
  });
  REQUIRE(job.eventually([&] { return job.at(22).failure->departed(21); }));
  job.kill(1);
  for (const int rank : job.members()) {
    if (rank == 21) continue;
    INFO("rank " << rank);
    REQUIRE(job.eventually([&] { return job.at(rank).part_failure->failed(); }, kHeardMs));
    CHECK(job.at(rank).part_failure->status().message() == "rank 19: enough");
  }
}

TEST_CASE("a rank that finds a new parent hears of failures that came while it had none") {
  const bool all_leave = GENERATE(false, true);  // the ranks that know of it leave the communicator
  // Rank 5 is below rank 1, which forwards nothing.
  Family job(GENERATE(range(0U, 20U)), 6, all_but(6, {1}));
  job.stop(1);
  job.have(2, [](Rank* self) {
    self->part->announce_failure(Status::aborted("enough"));
    self->part->leave();
  });
  for (const int rank : {0, 3, 4}) {
    REQUIRE(job.eventually([&] { return job.at(rank).part_failure->failed(); }));
    if (all_leave) job.have(rank, [](Rank* self) { self->part->leave(); });
  }
  job.kill(1);
  REQUIRE(job.eventually([&] { return job.at(5).part_failure->failed(); }, kHeardMs));
  CHECK(job.at(5).part_failure->status().message() == "rank 1: enough");
}

TEST_CASE("a rank that has left a communicator before it died does not fail it, whatever was lost") {
  const bool outside = GENERATE(false, true);  // the rank that reports both is not a member itself
  const unsigned seed = GENERATE(range(0U, kSeeds));
  Family job(seed, 26, all_but(26, outside ? std::vector<int>{1, 5, 22, 23, 24} : std::vector<int>{1}));
  job.stop(1);
  job.have(21, [](Rank* self) { self->part->leave(); });
  job.kill(21);
  REQUIRE(job.eventually([&] { return job.at(22).failure->failed(); }));
  job.kill(1);
  const int left = outside ? 19 : 20;
  for (const int rank : job.members()) {
    if (rank == 21) continue;
    INFO("rank " << rank << ", seed " << seed << ": " << job.at(rank).part_failure->status().message());
    REQUIRE(job.eventually([&] { return job.at(rank).part_failure->departed(left); }, 2000));
    REQUIRE(job.eventually([&] { return job.at(rank).failure->failed(); }, 2000));
    CHECK(job.at(rank).part_failure->status().message() == "");
  }
}

TEST_CASE("the tree attends the other listeners of a rank until its last communicator leaves") {
  Family job(GENERATE(range(0U, 5U)), 6, all_but(6, {}));
  const auto attended_in = [&](int rank, std::int64_t ms) {
    const int before = job.at(rank).attended;
    job.world().run_for(ms);
    return job.at(rank).attended - before;
  };
  const int idle = attended_in(3, 60'000);  // every 5 s, for both communicators together
  CHECK(idle >= 11);
  CHECK(idle <= 13);
  job.at(3).is_attacked = true;
  job.world().run_for(5000);
  const int attacked = attended_in(3, 10'000);  // every 0.2 s
  CHECK(attacked >= 45);
  CHECK(attacked <= 51);
  job.have(3, [](Rank* self) { self->whole->leave(); });
  CHECK(attended_in(3, 10'000) >= 45);
  job.have(3, [](Rank* self) { self->part->leave(); });
  CHECK(attended_in(3, 10'000) == 0);
}

TEST_CASE("silent ranks do not prevent a rank from finding another parent") {
  // Rank 21 is below rank 5. Of the other lower ranks the first to answer is rank 12.
  std::vector<int> silent(12);
  std::iota(silent.begin(), silent.end(), 0);
  Family job(GENERATE(range(0U, 20U)), 22, all_but(22, silent));
  for (const int rank : silent) job.stop(rank);
  job.kill(5);
  job.world().run_for(50);
  job.have(21, [](Rank* self) { self->part->announce_failure(Status::aborted("enough")); });
  REQUIRE(job.eventually([&] { return job.at(12).part_failure->failed(); }, 2000));
  CHECK(job.at(12).part_failure->status().message() == "rank 9: enough");
}

TEST_CASE("a notice reaches the members though the rank that it was on its way through has died") {
  // The way from rank 6 to rank 21 goes through ranks 1 and 5. Rank 1 has passed the notice on to rank 5, which has
  // not, and does not answer when rank 21 asks it to be its parent. So rank 21 asks rank 0, which has not heard the
  // notice.
  Family job(GENERATE(range(0U, 20U)), 22, {6, 21});
  job.stop(5);
  job.have(6, [](Rank* self) { self->part->announce_failure(Status::aborted("enough")); });
  job.world().run_for(50);
  job.stop(1);
  job.kill(5);
  job.world().run_for(200);
  CHECK_FALSE(job.at(21).part_failure->failed());
  job.world().go_on(job.at(1).process);
  REQUIRE(job.eventually([&] { return job.at(21).part_failure->failed(); }, kMissedMs));
  CHECK(job.at(21).part_failure->status().message() == "rank 0: enough");
}

TEST_CASE("a group is made although parts of it were lost with a rank that is not a member") {
  // Rank 21 is below rank 5, which is below rank 1. Rank 2 has forwarded the parts that it knows, and rank 5 none of
  // them, when rank 5 dies. Rank 3 comes later, so the group is still incomplete.
  Family job(GENERATE(range(0U, 20U)), 26, {});
  Group group{{0, 2, 3, 21}, {}};
  job.stop(5);
  job.split_off(&group, {0, 2, 21});
  job.world().run_for(200);
  job.kill(5);
  job.world().run_for(2000);
  job.split_off(&group, {3});
  CHECK(job.eventually([&] { return group.is_made(); }, kMissedMs));
}
