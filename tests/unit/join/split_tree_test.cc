// Communicators that share the control tree of their job: each has its own numbering, failures and leave notices.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <random>

#include "catch_compat.h"
#include "ranks.h"
#include "sanitizers.h"

using namespace tutti::internal;
using tutti::internal::test::Child;
using tutti::internal::test::eventually;
using tutti::internal::test::on_threads;

namespace {

constexpr std::int64_t kLongMs = 60'000;
constexpr int kRanks = 21;  // rank 0, four below it, and four below each of these

bool contains(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}

CallSummary called(std::uint32_t operations, std::uint64_t odd = 0) {
  CallSummary summary;
  summary.operations = operations;
  summary.hash = operations + odd;
  for (std::uint32_t i = 1; i <= operations; ++i) {
    const std::uint64_t call = i == operations ? odd : 0;
    summary.calls.push_back({i, {call, 0}, i - 1, "call " + std::to_string(call) + " as " + std::to_string(i), ""});
  }
  return summary;
}

// One rank's part of a communicator.
struct Member {
  std::shared_ptr<FailureState> failure = std::make_shared<FailureState>();
  std::atomic<std::uint64_t> odd_call{0};
  std::atomic<std::uint32_t> sequence{5};
  std::atomic<int> answers{0};
  std::atomic<int> decisions{0};
  std::mutex mutex;
  Answer last;
  std::unique_ptr<ControlTree> tree;  // destroyed first: it uses the others

  Status watch() {
    Witness witness;
    witness.where = [this] { return Whereabouts{sequence, false}; };
    witness.calls = [this] { return called(3, odd_call); };
    witness.answered = [this](const Answer& answer) {
      const std::lock_guard lock(mutex);
      last = answer;
      ++answers;
    };
    witness.decided = [this](const std::string& decision) { decisions += decision == "so it is" ? 1 : 100; };
    return tree->watch(failure, witness);
  }
  Answer answer() {
    const std::lock_guard lock(mutex);
    return last;
  }
};

Settings loopback() {
  Settings settings;
  settings.interface = "lo";
  return settings;
}

Status join_job(const UniqueIdBytes& id, int rank, int ranks, Member* member) {
  const Deadline deadline = Deadline::after_ms(kLongMs);
  Result<Job> job = join(id, rank, ranks, loopback(), deadline);
  if (!job.is_ok()) return job.status();
  member->tree = std::move(job->tree);
  Status s = member->tree->all_gather("x", deadline).status();
  return s.is_ok() ? member->watch() : s;
}

// Makes the communicator of `members`, and checks that it has its own numbering.
Status split_off(ControlTree& from, std::uint64_t id, const std::vector<int>& members, int rank, Member* member) {
  const Deadline deadline = Deadline::after_ms(kLongMs);
  auto tree = from.split(id, members);
  if (!tree.is_ok()) return tree.status();
  member->tree = std::move(tree).value();
  for (int round = 0; round < 3; ++round) {
    auto all = member->tree->all_gather(std::to_string(rank * 10 + round), deadline);
    if (!all.is_ok()) return all.status();
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (all->at(i) != std::to_string(members[i] * 10 + round)) return Status::internal("wrong part: " + all->at(i));
    }
  }
  return member->watch();
}

// A job of threads, its ranks split into `colors`: in each, ranks in falling order.
struct SplitJob {
  explicit SplitJob(int colors, int victim = -1, const UniqueIdBytes* given = nullptr)
      : groups(static_cast<std::size_t>(colors)), whole(kRanks), parts(kRanks) {
    for (int rank = kRanks - 1; rank >= 0; --rank) groups[static_cast<std::size_t>(rank % colors)].push_back(rank);
    Result<UniqueIdBytes> id = create_unique_id(loopback());
    REQUIRE(id.is_ok());
    if (given != nullptr) id = *given;
    std::vector<Status> statuses(kRanks);
    on_threads(kRanks, [&](int rank) {
      if (rank != victim) statuses[static_cast<std::size_t>(rank)] = make(*id, rank);
    });
    for (const Status& status : statuses) {
      INFO(status.message());
      REQUIRE(status.is_ok());
    }
  }
  Status make(const UniqueIdBytes& id, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (Status s = join_job(id, rank, kRanks, &whole[r]); !s.is_ok()) return s;
    // Ranks reach the split at different times, and receive messages about it before.
    std::this_thread::sleep_for(std::chrono::milliseconds(rank * 7 % 20));
    return split_off(*whole[r].tree, color_of(rank) + 1, group_of(rank), rank, &parts[r]);
  }
  [[nodiscard]] std::uint64_t color_of(int rank) const { return static_cast<std::uint64_t>(rank) % groups.size(); }
  [[nodiscard]] const std::vector<int>& group_of(int rank) const { return groups[color_of(rank)]; }
  // Its name in its group.
  [[nodiscard]] std::string name_of(int rank) const {
    const std::vector<int>& group = group_of(rank);
    return "rank " + std::to_string(std::find(group.begin(), group.end(), rank) - group.begin());
  }
  Member& part(int rank) { return parts[static_cast<std::size_t>(rank)]; }
  Member& job(int rank) { return whole[static_cast<std::size_t>(rank)]; }

  std::vector<std::vector<int>> groups;
  std::vector<Member> whole;
  std::vector<Member> parts;
};

}  // namespace

TEST_CASE("a failure of one communicator reaches its members, by their numbers, and no other rank") {
  const int colors = GENERATE(1, 2, 3, 7);
  const int origin = GENERATE(0, 6, 20);
  SplitJob job(colors);
  job.part(origin).tree->announce_failure(Status::aborted("enough"));
  for (int rank = 0; rank < kRanks; ++rank) {
    INFO("rank " << rank << " of " << colors << " colors, told by " << origin);
    if (rank == origin || job.color_of(rank) != job.color_of(origin)) {
      CHECK_FALSE(job.part(rank).failure->failed());
    } else {
      REQUIRE(eventually([&] { return job.part(rank).failure->failed(); }));
      CHECK(job.part(rank).failure->status().message() == job.name_of(origin) + ": enough");
    }
    CHECK_FALSE(job.job(rank).failure->failed());
  }
  // The job's failure is not a failure of its parts.
  job.job(3).tree->announce_failure(Status::aborted("the end"));
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == 3) continue;
    REQUIRE(eventually([&] { return job.job(rank).failure->failed(); }));
    CHECK(job.job(rank).failure->status().message() == "rank 3: the end");
    CHECK(job.part(rank).failure->failed() == (rank != origin && job.color_of(rank) == job.color_of(origin)));
  }
}

TEST_CASE("a decision reaches all other members, once, and no other rank") {
  const int colors = GENERATE(1, 2, 7);
  const int origin = GENERATE(0, 6, 20);
  SplitJob job(colors);
  job.part(origin).tree->tell_decision("so it is");
  for (int rank = 0; rank < kRanks; ++rank) {
    const int expected = rank != origin && job.color_of(rank) == job.color_of(origin) ? 1 : 0;
    CHECK(eventually([&] { return job.part(rank).decisions == expected; }));
    CHECK(job.job(rank).decisions == 0);
  }
}

TEST_CASE("a communicator outlives its parent, and can be split again") {
  const int colors = GENERATE(2, 5);
  SplitJob job(colors);
  for (Member& member : job.whole) {
    member.tree->leave();
    member.tree.reset();
  }
  // The lower half of each part, in rising order.
  std::vector<Member> halves(kRanks);
  std::vector<Status> statuses(kRanks);
  on_threads(kRanks, [&](int rank) {
    const std::vector<int>& group = job.group_of(rank);
    std::vector<int> half;  // as ranks of the part
    for (std::size_t i = group.size(); i-- > (group.size() + 1) / 2;) half.push_back(static_cast<int>(i));
    if (half.size() < 2) return;
    if (std::none_of(half.begin(), half.end(), [&](int i) { return group[static_cast<std::size_t>(i)] == rank; }))
      return;
    std::vector<int> job_ranks;
    for (const int i : half) job_ranks.push_back(group[static_cast<std::size_t>(i)]);
    const auto r = static_cast<std::size_t>(rank);
    auto tree = job.part(rank).tree->split(100 + job.color_of(rank), half);
    statuses[r] = tree.status();
    if (!tree.is_ok()) return;
    halves[r].tree = std::move(tree).value();
    auto all = halves[r].tree->all_gather(std::to_string(rank), Deadline::after_ms(kLongMs));
    statuses[r] = all.status();
    for (std::size_t i = 0; all.is_ok() && i < half.size(); ++i) {
      if (all->at(i) != std::to_string(job_ranks[i])) statuses[r] = Status::internal("wrong part");
    }
    if (statuses[r].is_ok()) statuses[r] = halves[r].watch();
  });
  for (const Status& status : statuses) REQUIRE(status.message() == "");
  for (int rank = 0; rank < kRanks; ++rank) CHECK_FALSE(job.part(rank).failure->failed());
}

TEST_CASE("leave notices and calls are compared only among the members") {
  const int colors = GENERATE(2, 3, 7);
  const int odd = GENERATE(1, 12, 20);
  SplitJob job(colors);
  job.part(odd).odd_call = 7;
  std::atomic<int> complete{0};
  on_threads(kRanks, [&](int rank) {
    if (job.part(rank).tree->finish(kLongMs)) ++complete;
    job.part(rank).tree->leave();
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    const Status status = job.part(rank).failure->status();
    INFO("rank " << rank << ", odd " << odd << ": " << status.message());
    CHECK(status.is_ok() == (job.color_of(rank) != job.color_of(odd)));
    if (!status.is_ok()) CHECK(contains(status, job.name_of(odd) + " runs call 7 as 3"));
    CHECK_FALSE(job.job(rank).failure->failed());
  }
  CHECK(complete >= kRanks - static_cast<int>(job.group_of(odd).size()));
}

TEST_CASE("ranks that leave before others have made their part wait until all have, and no longer") {
  constexpr int kMembers = 3;
  // The rank that comes last: above the others in the tree, or below.
  const int late = GENERATE(0, 1, 2);
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  std::vector<Member> whole(kMembers);
  std::vector<Member> parts(kMembers);
  std::vector<Status> statuses(kMembers);
  std::atomic<bool> last_has_come{false};
  std::atomic<int> too_early{0};
  std::atomic<int> in_vain{0};
  on_threads(kMembers, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    statuses[r] = join_job(*id, rank, kMembers, &whole[r]);
    if (!statuses[r].is_ok()) return;
    // Long after the other ranks have sent their leave notices.
    if (rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    auto tree = whole[r].tree->split(7, {0, 1, 2});
    statuses[r] = tree.status();
    if (!statuses[r].is_ok()) return;
    parts[r].tree = std::move(*tree);
    statuses[r] = parts[r].watch();
    if (rank == late) last_has_come = true;
    if (!parts[r].tree->finish(kLongMs)) ++in_vain;
    if (!last_has_come) ++too_early;
    parts[r].tree->leave();
  });
  for (const Status& status : statuses) CHECK(status.message() == "");
  CHECK(in_vain == 0);
  CHECK(too_early == 0);
}

TEST_CASE("reports of calls find the two that differ, wherever they are in the tree") {
  const int colors = GENERATE(2, 3, 7);
  const bool asked = GENERATE(true, false);
  SplitJob job(colors);
  const std::vector<int>& group = job.groups[1];
  for (const int rank : group) {
    if (rank == group.front()) job.part(rank).odd_call = 7;
    if (!asked) job.part(rank).tree->report_calls(called(3, job.part(rank).odd_call).calls);
  }
  if (asked) job.part(group.back()).tree->compare_calls();
  for (int rank = 0; rank < kRanks; ++rank) {
    INFO("rank " << rank << " of " << colors << " colors");
    if (job.color_of(rank) != 1) {
      CHECK_FALSE(job.part(rank).failure->failed());
      continue;
    }
    REQUIRE(eventually([&] { return job.part(rank).failure->failed(); }));
    CHECK(contains(job.part(rank).failure->status(), "rank 0 runs call 7 as 3"));
  }
}

TEST_CASE("missing members are named to the members, by their numbers") {
  const int colors = GENERATE(2, 3, 7);
  SplitJob job(colors);
  const std::vector<int>& group = job.groups[1];
  const std::size_t late = group.size() / 2;
  job.part(group[late]).sequence = 4;
  job.part(group.front()).tree->ask({5, 1500, 0, "", ""});
  for (int rank = 0; rank < kRanks; ++rank) {
    INFO("rank " << rank << " of " << colors << " colors");
    CHECK(job.part(rank).answers <= 1);
    if (job.color_of(rank) != 1) continue;
    REQUIRE(eventually([&] { return job.part(rank).answers == 1; }));
    const std::vector<Absence> absent = job.part(rank).answer().absent;
    REQUIRE(absent.size() == 1);
    CHECK((absent[0] == Absence{static_cast<int>(late), false, 4, false}));
  }
  for (int rank = 0; rank < kRanks; ++rank) CHECK(job.part(rank).answers == (job.color_of(rank) == 1 ? 1 : 0));
}

TEST_CASE("a member that does not come to the first gather is named by its number") {
  SplitJob job(3);
  const std::vector<int> members = {20, 1, 12, 5, 9};
  std::vector<Status> statuses(kRanks);
  on_threads(kRanks, [&](int rank) {
    if (std::find(members.begin(), members.end(), rank) == members.end() || rank == 12) return;
    auto tree = job.job(rank).tree->split(50, members);
    statuses[static_cast<std::size_t>(rank)] = tree.status();
    if (!tree.is_ok()) return;
    statuses[static_cast<std::size_t>(rank)] = (*tree)->all_gather("x", Deadline::after_ms(5000)).status();
    (*tree)->leave();
  });
  for (const int rank : {20, 1, 5, 9}) {
    const Status& status = statuses[static_cast<std::size_t>(rank)];
    INFO("rank " << rank << ": " << status.message());
    CHECK(status.code() == Code::kTimeout);
    CHECK(contains(status, "waiting for rank 2"));
  }
  for (int rank = 0; rank < kRanks; ++rank) CHECK_FALSE(job.job(rank).failure->failed());
}

TEST_CASE("communicators are made and left by the hundred, in any order, and cost no thread or descriptor") {
  SplitJob job(3);
  const auto open_files = [] {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
  };
  const int before = open_files();
  std::vector<Status> statuses(kRanks);
  on_threads(kRanks, [&](int rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<std::unique_ptr<Member>> members;
    for (std::uint64_t round = 0; round < (test::kThreadSanitizer ? 20 : 100); ++round) {
      std::vector<int> all(kRanks);
      std::iota(all.begin(), all.end(), 0);
      std::mt19937 common(static_cast<unsigned>(round));
      std::shuffle(all.begin(), all.end(), common);
      const std::vector<int> chosen(all.begin(), all.begin() + 2 + static_cast<int>(round % 7));
      if (std::find(chosen.begin(), chosen.end(), rank) == chosen.end()) continue;
      members.push_back(std::make_unique<Member>());
      Status s = split_off(*job.job(rank).tree, 1000 + round, chosen, rank, members.back().get());
      if (!s.is_ok()) statuses[static_cast<std::size_t>(rank)] = s;
    }
    std::shuffle(members.begin(), members.end(), random);
    for (const auto& member : members) {
      member->tree->leave();
      if (member->failure->failed()) statuses[static_cast<std::size_t>(rank)] = member->failure->status();
    }
  });
  for (const Status& status : statuses) CHECK(status.message() == "");
  CHECK(open_files() == before);
}

TEST_CASE("a death fails the communicators of the dead rank and no other", "[fork]") {
  const int victim = GENERATE(0, 1, 7, 20);
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  const Child dies([&]() -> int {
    Member whole;
    Member part;
    std::vector<int> group;
    for (int rank = kRanks - 1; rank >= 0; --rank) {
      if (rank % 3 == victim % 3) group.push_back(rank);
    }
    if (!join_job(*id, victim, kRanks, &whole).is_ok()) return 1;
    if (!split_off(*whole.tree, static_cast<std::uint64_t>(victim % 3) + 1, group, victim, &part).is_ok()) return 2;
    ::sleep(120);
    return 0;
  });
  SplitJob job(3, victim, &*id);
  dies.kill(SIGKILL);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == victim) continue;
    INFO("rank " << rank << " of the survivors of " << victim);
    REQUIRE(eventually([&] { return job.job(rank).failure->failed(); }));
    CHECK(contains(job.job(rank).failure->status(), "rank " + std::to_string(victim) + " (host "));
    if (job.color_of(rank) == job.color_of(victim)) {
      REQUIRE(eventually([&] { return job.part(rank).failure->failed(); }));
      CHECK(contains(job.part(rank).failure->status(), job.name_of(victim) + " (host "));
      CHECK(contains(job.part(rank).failure->status(), "died"));
    } else {
      CHECK_FALSE(job.part(rank).failure->failed());
    }
  }
}

TEST_CASE("a split of wrong members is refused") {
  SplitJob job(3);
  ControlTree& tree = *job.job(2).tree;
  CHECK(tree.split(70, {0, 1}).status().code() == Code::kInternalError);
  CHECK(tree.split(71, {2, 2}).status().code() == Code::kInternalError);
  CHECK(tree.split(72, {2, kRanks}).status().code() == Code::kInternalError);
  CHECK(tree.split(3, {2, 1}).status().code() == Code::kInvalidUsage);  // which it has
  Result<std::unique_ptr<ControlTree>> alone = tree.split(74, {2});
  REQUIRE(alone.is_ok());
  CHECK(*alone == nullptr);
  tree.leave();
  CHECK(tree.split(75, {2, 1}).status().code() == Code::kInvalidUsage);
  CHECK_FALSE(job.part(2).failure->failed());
}

TEST_CASE("a split with a member that is gone already fails") {
  const int gone = GENERATE(0, 2, 6);
  SplitJob job(3);
  job.part(gone).tree->leave();
  job.job(gone).tree->leave();
  std::vector<int> members = {gone, 20, 1, 12};
  std::vector<Status> statuses(kRanks);
  const std::int64_t begin_ns = now_ns();
  on_threads(kRanks, [&](int rank) {
    if (rank == gone || std::find(members.begin(), members.end(), rank) == members.end()) return;
    auto tree = job.job(rank).tree->split(60, members);
    statuses[static_cast<std::size_t>(rank)] = tree.status();
    if (!tree.is_ok()) return;
    statuses[static_cast<std::size_t>(rank)] = (*tree)->all_gather("x", Deadline::after_ms(kLongMs)).status();
    (*tree)->leave();
  });
  CHECK(now_ns() - begin_ns < 5'000'000'000);
  for (const int rank : {20, 1, 12}) {
    const Status& status = statuses[static_cast<std::size_t>(rank)];
    INFO("rank " << rank << ": " << status.message());
    CHECK(status.code() == Code::kRemoteError);
    CHECK(contains(status, "rank 0 left before it had made its part of this communicator"));
    CHECK_FALSE(job.job(rank).failure->failed());
  }
}

TEST_CASE("ranks that split off different communicators with one id get an error") {
  const int first = GENERATE(0, 1, 2, 3);  // the rank that comes first
  const bool overlap = GENERATE(true, false);
  SplitJob job(3);
  const std::vector<int> ranks = overlap ? std::vector<int>{7, 8, 9} : std::vector<int>{7, 8, 9, 10};
  std::vector<Status> statuses(kRanks);
  on_threads(kRanks, [&](int rank) {
    const auto at = std::find(ranks.begin(), ranks.end(), rank);
    if (at == ranks.end()) return;
    const std::vector<int> members = overlap ? (rank == 9 ? std::vector<int>{8, 9} : std::vector<int>{7, 8})
                                             : (rank >= 9 ? std::vector<int>{9, 10} : std::vector<int>{7, 8});
    if (at - ranks.begin() != first) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    auto tree = job.job(rank).tree->split(60, members);
    statuses[static_cast<std::size_t>(rank)] = tree.status();
    if (!tree.is_ok()) return;
    Status s = (*tree)->all_gather("x", Deadline::after_ms(kLongMs)).status();
    auto failure = std::make_shared<FailureState>();
    if (s.is_ok()) s = (*tree)->watch(failure, {});
    if (s.is_ok() && eventually([&] { return failure->failed(); })) s = failure->status();
    statuses[static_cast<std::size_t>(rank)] = s;
    (*tree)->leave();
  });
  for (const int rank : ranks) {
    const Status& status = statuses[static_cast<std::size_t>(rank)];
    INFO("rank " << rank << ": " << status.message());
    CHECK(status.code() == Code::kMismatch);
    CHECK(contains(status, "has split off"));
    CHECK_FALSE(job.job(rank).failure->failed());
  }
}

TEST_CASE("frames kept for communicators that a rank has not made yet are bounded", "[one_thread]") {
  SplitJob job(3);
  const std::vector<int> members = {3, 17};
  constexpr std::uint64_t kMany = 1500;
  std::vector<std::unique_ptr<ControlTree>> ahead;
  for (std::uint64_t i = 0; i < kMany; ++i) {
    auto tree = job.job(3).tree->split(5000 + i, members);
    REQUIRE((tree.is_ok() && (*tree)->watch(std::make_shared<FailureState>(), {}).is_ok()));
    (*tree)->tell_decision("so that the other member hears of it");
    ahead.push_back(std::move(tree).value());
  }
  std::vector<Status> statuses(2);
  const auto gather = [&](std::uint64_t i) {
    on_threads(2, [&](int which) {
      std::unique_ptr<ControlTree> made;
      if (which == 1) made = std::move(job.job(17).tree->split(5000 + i, members)).value();
      ControlTree& tree = which == 0 ? *ahead[i] : *made;
      Status& status = statuses[static_cast<std::size_t>(which)];
      status = tree.all_gather("x", Deadline::after_ms(kLongMs)).status();
      const auto failure = std::make_shared<FailureState>();
      if (status.is_ok()) status = tree.watch(failure, {});
      if (status.is_ok()) status = failure->status();
      tree.leave();
    });
  };
  gather(kMany - 1);  // after all others: so each of them is known
  for (const Status& status : statuses) CHECK(status.message() == "");
  gather(0);
  for (const Status& status : statuses) {
    CHECK(status.code() == Code::kInvalidUsage);
    CHECK(contains(status, "rank 1 came to this communicator too late"));
  }
  gather(kMany - 2);
  for (const Status& status : statuses) CHECK(status.message() == "");
  for (const int rank : members) CHECK_FALSE(job.job(rank).failure->failed());
}
