// Ranks that die or leave while others go on: the others find new neighbours in the tree, and hear of each other as
// before.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <random>
#include <set>

#include "catch_compat.h"
#include "join/root_service.h"
#include "ranks.h"

using namespace tutti::internal;
using tutti::internal::test::Child;
using tutti::internal::test::eventually;
using tutti::internal::test::on_threads;

namespace {

constexpr std::int64_t kLongMs = 60'000;
constexpr std::int64_t kHeardMs = 1000;  // so soon everybody hears
// And of a rank that has died together with its only neighbour: some 400 ms, on a machine that other work keeps busy.
constexpr std::int64_t kMissedMs = 3000;

Settings loopback() {
  Settings settings;
  settings.interface = "lo";
  return settings;
}

bool contains(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}

// A rank with the job's communicator and one of `others` alone.
struct Rank {
  std::shared_ptr<FailureState> failure = std::make_shared<FailureState>();
  std::shared_ptr<FailureState> part_failure = std::make_shared<FailureState>();
  std::unique_ptr<ControlTree> part;
  std::unique_ptr<ControlTree> whole;

  Status join_job(const UniqueIdBytes& id, int rank, int ranks) {
    Result<Job> job = join(id, rank, ranks, loopback(), Deadline::after_ms(kLongMs));
    if (!job.is_ok()) return job.status();
    whole = std::move(job->tree);
    if (Status s = whole->all_gather("x", Deadline::after_ms(kLongMs)).status(); !s.is_ok()) return s;
    return whole->watch(failure, {});
  }
  Status split_off(std::uint64_t id, const std::vector<int>& members) {
    auto tree = whole->split(id, members);
    if (!tree.is_ok()) return tree.status();
    part = std::move(tree).value();
    if (Status s = part->all_gather("y", Deadline::after_ms(kLongMs)).status(); !s.is_ok()) return s;
    return part->watch(part_failure, {});
  }
};

// Ranks that are processes, to be killed one after the other, and threads that survive them. Survivors have a
// communicator of all but the first victims; so a death of these does not fail it.
struct Mortals {
  // `outsiders`: survivors that are no members of that communicator either.
  Mortals(int count, std::vector<int> first_victims, std::vector<int> last_victims, std::vector<int> outsiders = {})
      : ranks(count),
        first(std::move(first_victims)),
        last(std::move(last_victims)),
        survivors(static_cast<std::size_t>(count)) {
    Result<UniqueIdBytes> id = create_unique_id(loopback());
    REQUIRE(id.is_ok());
    for (int rank = 0; rank < ranks; ++rank) {
      if (!is_in(first, rank) && !is_in(outsiders, rank)) members.push_back(rank);
    }
    for (const int rank : first) first_children.push_back(start(*id, rank));
    for (const int rank : last) last_children.push_back(start(*id, rank));
    std::vector<Status> statuses(static_cast<std::size_t>(ranks));
    on_threads(ranks, [&](int rank) {
      if (!survives(rank)) return;
      Rank& self = survivors[static_cast<std::size_t>(rank)];
      Status s = self.join_job(*id, rank, ranks);
      if (s.is_ok() && is_in(members, rank)) s = self.split_off(7, members);
      statuses[static_cast<std::size_t>(rank)] = s;
    });
    for (const Status& status : statuses) {
      INFO(status.message());
      REQUIRE(status.is_ok());
    }
  }
  static bool is_in(const std::vector<int>& list, int rank) {
    return std::find(list.begin(), list.end(), rank) != list.end();
  }
  [[nodiscard]] bool survives(int rank) const { return !is_in(first, rank) && !is_in(last, rank); }
  std::unique_ptr<Child> start(const UniqueIdBytes& id, int rank) {
    return std::make_unique<Child>([&, rank]() -> int {
      (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
      Rank self;
      if (!self.join_job(id, rank, ranks).is_ok()) return 1;
      if (!is_in(first, rank) && !self.split_off(7, members).is_ok()) return 2;
      if (!eventually([&] { return shared->parts.load() == rank; }, 2 * kLongMs)) return 3;
      self.part->leave();
      shared->parted = rank;
      ::sleep(120);
      return 0;
    });
  }
  // In the communicator of the survivors.
  [[nodiscard]] std::string name_of(int rank) const {
    return "rank " + std::to_string(std::find(members.begin(), members.end(), rank) - members.begin()) + " ";
  }
  // Has a victim of the last leave the communicator of the survivors.
  void have_leave(int rank) const {
    shared->parts = rank;
    REQUIRE(eventually([&] { return shared->parted.load() == rank; }));
  }
  Rank& survivor(int rank) { return survivors[static_cast<std::size_t>(rank)]; }
  void expect_heard(int victim, std::int64_t within_ms = kHeardMs) {
    const Deadline deadline = Deadline::after_ms(within_ms);
    for (const int rank : members) {
      if (!survives(rank)) continue;
      const Rank& self = survivors[static_cast<std::size_t>(rank)];
      INFO("rank " << rank << " of " << ranks << " is to hear that " << victim << " has died");
      REQUIRE(eventually([&] { return self.part_failure->failed(); }, deadline.left_ms(10'000) + 1));
      CHECK(contains(self.part_failure->status(), name_of(victim) + "(host "));
      CHECK(contains(self.part_failure->status(), "died"));
    }
  }

  // Between the processes.
  struct Shared {
    std::atomic<int> parts{-1};
    std::atomic<int> parted{-1};
  };
  std::shared_ptr<Shared> shared{
      new (::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared(),
      [](Shared* at) { ::munmap(at, sizeof(Shared)); }};
  int ranks;
  std::vector<int> first;
  std::vector<int> last;
  std::vector<int> members;
  std::vector<Rank> survivors;
  std::vector<std::unique_ptr<Child>> first_children;
  std::vector<std::unique_ptr<Child>> last_children;
};

}  // namespace

TEST_CASE("when a rank between others has been killed, all survivors hear of the next death", "[fork]") {
  const unsigned seed = GENERATE(range(0U, 24U));
  std::mt19937 random(seed);
  const int ranks = 6 + static_cast<int>(random() % 16);
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
  // Ranks with others below them die first; the last victim may be any other.
  const int inner = (ranks - 2) / 4 + 1;
  std::vector<int> first = {static_cast<int>(random() % static_cast<unsigned>(inner))};
  if (random() % 3 == 0 && inner > 1) first.push_back((first[0] + 1) % inner);
  int last = 0;
  do {
    last = static_cast<int>(random() % static_cast<unsigned>(ranks));
  } while (Mortals::is_in(first, last));
  // At the same time as its only neighbour one may die unseen.
  const bool orphan = last > 0 && Mortals::is_in(first, tree_parent(last));
  const int pause_ms = static_cast<int>(random() % 3) * 60;
  INFO("seed " << seed << ": " << ranks << " ranks, first " << first[0] << " of " << first.size() << ", then " << last
               << " after " << pause_ms << " ms");
  Mortals job(ranks, first, {last});
  for (const auto& child : job.first_children) child->kill(SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
  for (const int rank : job.members) {
    if (job.survives(rank)) CHECK_FALSE(job.survivors[static_cast<std::size_t>(rank)].part_failure->failed());
  }
  job.last_children[0]->kill(SIGKILL);
  job.expect_heard(last, orphan ? kMissedMs : kHeardMs);
}

TEST_CASE("ranks that die at the same moment, one below the other, are missed within a second", "[fork]") {
  // Rank 0 and a leaf below it; the first two, of which the second is the next root; two levels and a leaf.
  const auto [ranks, above, leaf] = GENERATE(table<int, std::vector<int>, int>({{6, {0}, 4},
                                                                                {5, {0}, 4},
                                                                                {6, {0}, 2},
                                                                                {6, {0}, 1},
                                                                                {9, {0, 1}, 7},
                                                                                {9, {0, 1}, 2},
                                                                                {22, {0, 1, 5}, 21},
                                                                                {12, {0, 1, 2, 3}, 4}}));
  INFO(ranks << " ranks, rank " << leaf << " dies with " << above.size() << " above it");
  Mortals job(ranks, above, {leaf});
  for (const auto& child : job.first_children) child->kill(SIGKILL);
  job.last_children[0]->kill(SIGKILL);
  job.expect_heard(leaf, kMissedMs);
}

TEST_CASE("a rank that is stopped while its parent dies is waited for", "[fork]") {
  Mortals job(9, {1}, {7});  // rank 7 is below rank 1
  job.last_children[0]->kill(SIGSTOP);
  job.first_children[0]->kill(SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(9000));
  for (const int rank : job.members) {
    INFO("rank " << rank);
    if (job.survives(rank)) CHECK(job.survivor(rank).part_failure->status().message() == "");
  }
  job.last_children[0]->kill(SIGCONT);
  job.have_leave(7);
  const int left = 6;
  for (const int rank : job.members) {
    INFO("rank " << rank << " is to hear that rank 7 has left");
    if (job.survives(rank)) CHECK(eventually([&] { return job.survivor(rank).part_failure->departed(left); }));
  }
}

TEST_CASE("what is said while the tree has a gap is heard by all when it is closed", "[fork]") {
  const unsigned seed = GENERATE(range(0U, 12U));
  std::mt19937 random(seed);
  const int ranks = 9 + static_cast<int>(random() % 13);
  const int victim = static_cast<int>(random() % 3);
  const int origin = ranks - 1 - static_cast<int>(random() % 3);
  INFO("seed " << seed << ": " << ranks << " ranks, without " << victim << ", rank " << origin << " aborts");
  Mortals job(ranks, {victim}, {});
  job.first_children[0]->kill(SIGKILL);
  if (seed % 2 == 0)
    REQUIRE(eventually([&] { return job.survivors[static_cast<std::size_t>(origin)].failure->failed(); }));
  job.survivors[static_cast<std::size_t>(origin)].part->announce_failure(Status::aborted("enough"));
  const Deadline deadline = Deadline::after_ms(kHeardMs);
  for (const int rank : job.members) {
    if (rank == origin) continue;
    const Rank& self = job.survivors[static_cast<std::size_t>(rank)];
    INFO("rank " << rank);
    REQUIRE(eventually([&] { return self.part_failure->failed(); }, deadline.left_ms(10'000) + 1));
    CHECK(self.part_failure->status().message() ==
          job.name_of(origin).substr(0, job.name_of(origin).size() - 1) + ": enough");
  }
}

TEST_CASE("ranks that leave one after the other are heard of by all, and so is a failure after that") {
  const unsigned seed = GENERATE(range(0U, 24U));
  std::mt19937 random(seed);
  const int ranks = 6 + static_cast<int>(random() % 20);
  const bool root_too = random() % 2 == 0;
  std::vector<Rank> all(static_cast<std::size_t>(ranks));
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  std::vector<Status> statuses(all.size());
  on_threads(ranks, [&](int rank) {
    statuses[static_cast<std::size_t>(rank)] = all[static_cast<std::size_t>(rank)].join_job(*id, rank, ranks);
  });
  for (const Status& status : statuses) REQUIRE(status.message() == "");
  // All that have others below them, in any order, and one that has none.
  std::vector<int> leaving;
  for (int rank = root_too ? 0 : 1; rank * 4 + 1 < ranks; ++rank) leaving.push_back(rank);
  std::shuffle(leaving.begin(), leaving.end(), random);
  leaving.push_back(ranks - 2);
  for (const int rank : leaving) {
    all[static_cast<std::size_t>(rank)].whole->leave();
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 30));
  }
  INFO("seed " << seed << ", " << ranks << " ranks, " << leaving.size() << " leave");
  const std::set<int> gone(leaving.begin(), leaving.end());
  for (int rank = 0; rank < ranks; ++rank) {
    if (gone.contains(rank)) continue;
    for (const int other : leaving) {
      INFO("rank " << rank << " is to hear that " << other << " has left");
      REQUIRE(eventually([&] { return all[static_cast<std::size_t>(rank)].failure->departed(other); }, 2000));
    }
    CHECK_FALSE(all[static_cast<std::size_t>(rank)].failure->failed());
  }
  all.back().whole->announce_failure(Status::aborted("enough"));
  for (int rank = 0; rank + 1 < ranks; ++rank) {
    if (gone.contains(rank)) continue;
    INFO("rank " << rank);
    const Rank& self = all[static_cast<std::size_t>(rank)];
    REQUIRE(eventually([&] { return self.failure->failed(); }, kHeardMs));
    CHECK(self.failure->status().message() == "rank " + std::to_string(ranks - 1) + ": enough");
  }
}

TEST_CASE("a gather goes on across a death of a rank that has no part in it", "[fork]") {
  const int victim = GENERATE(0, 1, 2);
  constexpr int kRanks = 21;
  Mortals job(kRanks, {victim}, {});
  std::vector<Status> statuses(kRanks);
  on_threads(kRanks, [&](int rank) {
    if (rank == victim) return;
    Rank& self = job.survivors[static_cast<std::size_t>(rank)];
    auto tree = self.part->split(8, [&] {
      std::vector<int> same;
      for (std::size_t i = 0; i < job.members.size(); ++i) same.push_back(static_cast<int>(i));
      return same;
    }());
    if (rank == kRanks - 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      job.first_children[0]->kill(SIGKILL);
    }
    for (int round = 0; tree.is_ok() && round < 20; ++round) {
      auto all = (*tree)->all_gather(std::to_string(round), Deadline::after_ms(kLongMs));
      statuses[static_cast<std::size_t>(rank)] = all.status();
      if (!all.is_ok()) return;
      for (const std::string& part : *all) {
        if (part != std::to_string(round)) statuses[static_cast<std::size_t>(rank)] = Status::internal("wrong part");
      }
    }
  });
  for (const Status& status : statuses) CHECK(status.message() == "");
}

TEST_CASE("a rank that dies together with its only neighbour is missed", "[fork]") {
  Mortals job(9, {1}, {7});  // rank 7 is below rank 1 and has nobody else
  job.first_children[0]->kill(SIGSTOP);
  job.last_children[0]->kill(SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  job.first_children[0]->kill(SIGKILL);
  for (const int rank : job.members) {
    if (!job.survives(rank)) continue;
    const Rank& self = job.survivors[static_cast<std::size_t>(rank)];
    INFO("rank " << rank);
    REQUIRE(eventually([&] { return self.part_failure->failed(); }, kMissedMs));
    CHECK(contains(self.part_failure->status(), job.name_of(7) + "(host "));
  }
}

TEST_CASE("deaths that nobody sees, one below the other, are missed at the same time", "[fork]") {
  Mortals job(22, {1, 5}, {21});  // rank 21 is below rank 5, which is below rank 1
  for (const auto& child : job.first_children) child->kill(SIGSTOP);
  job.last_children[0]->kill(SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  job.first_children[1]->kill(SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  job.first_children[0]->kill(SIGKILL);
  const Deadline deadline = Deadline::after_ms(kMissedMs);
  for (const int rank : job.members) {
    if (!job.survives(rank)) continue;
    INFO("rank " << rank);
    REQUIRE(eventually([&] { return job.survivor(rank).part_failure->failed(); }, deadline.left_ms(20'000) + 1));
    CHECK(contains(job.survivor(rank).part_failure->status(), job.name_of(21) + "(host "));
  }
}

TEST_CASE("ranks that leave at the same moment, one below the other, are heard of by all") {
  const unsigned seed = GENERATE(range(0U, 40U));
  std::mt19937 random(seed);
  const int ranks = 4 + static_cast<int>(random() % 20);
  std::vector<Rank> all(static_cast<std::size_t>(ranks));
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  std::vector<Status> statuses(all.size());
  on_threads(ranks, [&](int rank) {
    statuses[static_cast<std::size_t>(rank)] = all[static_cast<std::size_t>(rank)].join_job(*id, rank, ranks);
  });
  for (const Status& status : statuses) REQUIRE(status.message() == "");
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
  std::vector<unsigned> pauses_us;
  for (int rank = 0; rank < ranks; ++rank)
    pauses_us.push_back(static_cast<unsigned>(random() % (random() % 3 == 0 ? 12'000 : 200)));
  on_threads(ranks, [&](int rank) {
    if (!leaving.contains(rank)) return;
    std::this_thread::sleep_for(std::chrono::microseconds(pauses_us[static_cast<std::size_t>(rank)]));
    const std::int64_t begin_ns = now_ns();
    all[static_cast<std::size_t>(rank)].whole->leave();
    if (now_ns() - begin_ns > 1'500'000'000) statuses[static_cast<std::size_t>(rank)] = Status::internal("too long");
  });
  INFO("seed " << seed << ", " << ranks << " ranks, " << leaving.size() << " leave, " << *leaving.rbegin()
               << " the last");
  for (const Status& status : statuses) CHECK(status.message() == "");
  for (int rank = 0; rank < ranks; ++rank) {
    if (leaving.contains(rank)) continue;
    for (const int other : leaving) {
      INFO("rank " << rank << " is to hear that " << other << " has left");
      REQUIRE(eventually([&] { return all[static_cast<std::size_t>(rank)].failure->departed(other); }, 2000));
    }
    CHECK_FALSE(all[static_cast<std::size_t>(rank)].failure->failed());
  }
}

TEST_CASE("a rank that is no member keeps what members below it have said before they left", "[fork]") {
  // Rank 21 is below rank 5, which is below rank 1. What it says is lost with rank 1, but for what rank 5 keeps.
  Mortals job(26, {1}, {}, {5, 22, 23, 24});
  job.first_children[0]->kill(SIGSTOP);
  job.survivor(21).part->announce_failure(Status::aborted("enough"));
  job.survivor(21).part->leave();
  job.survivor(21).whole->leave();
  REQUIRE(eventually([&] { return job.survivor(22).failure->departed(21); }));
  job.first_children[0]->kill(SIGKILL);
  for (const int rank : job.members) {
    if (rank == 21) continue;
    INFO("rank " << rank);
    REQUIRE(eventually([&] { return job.survivor(rank).part_failure->failed(); }, 2000));
    CHECK(job.survivor(rank).part_failure->status().message() == "rank 19: enough");
  }
}

TEST_CASE("a rank that finds a new parent hears of failures that came while it had none", "[fork]") {
  const bool all_leave = GENERATE(false, true);  // those who have heard of it, the communicator
  // Rank 5 is below rank 1, which passes nothing on.
  Mortals job(6, {1}, {});
  job.first_children[0]->kill(SIGSTOP);
  job.survivor(2).part->announce_failure(Status::aborted("enough"));
  job.survivor(2).part->leave();
  for (const int rank : {0, 3, 4}) {
    REQUIRE(eventually([&] { return job.survivor(rank).part_failure->failed(); }));
    if (all_leave) job.survivor(rank).part->leave();
  }
  job.first_children[0]->kill(SIGKILL);
  REQUIRE(eventually([&] { return job.survivor(5).part_failure->failed(); }, 2000));
  CHECK(job.survivor(5).part_failure->status().message() == "rank 1: enough");
}

TEST_CASE("a rank that has left a communicator before it died does not fail it, whatever was lost", "[fork]") {
  const bool outside = GENERATE(false, true);  // the rank that tells of both is no member itself
  Mortals job(26, {1}, {21}, outside ? std::vector<int>{5, 22, 23, 24} : std::vector<int>{});
  job.first_children[0]->kill(SIGSTOP);
  job.have_leave(21);
  job.last_children[0]->kill(SIGKILL);
  REQUIRE(eventually([&] { return job.survivor(22).failure->failed(); }));
  job.first_children[0]->kill(SIGKILL);
  const int left = outside ? 19 : 20;
  for (const int rank : job.members) {
    if (!job.survives(rank)) continue;
    INFO("rank " << rank);
    REQUIRE(eventually([&] { return job.survivor(rank).part_failure->departed(left); }, 2000));
    REQUIRE(eventually([&] { return job.survivor(rank).failure->failed(); }, 2000));
    CHECK(job.survivor(rank).part_failure->status().message() == "");
  }
}

TEST_CASE("ranks that are silent do not keep one from finding another parent", "[fork]") {
  // Rank 21 is below rank 5. Of the others before it the first that answers is rank 12.
  std::vector<int> silent(12);
  std::iota(silent.begin(), silent.end(), 0);
  Mortals job(22, silent, {});
  for (const auto& child : job.first_children) child->kill(SIGSTOP);
  job.first_children[5]->kill(SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  job.survivor(21).part->announce_failure(Status::aborted("enough"));
  REQUIRE(eventually([&] { return job.survivor(12).part_failure->failed(); }, 2000));
  CHECK(job.survivor(12).part_failure->status().message() == "rank 9: enough");
}
