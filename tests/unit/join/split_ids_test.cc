// New communicators of threads of one process whose members do not agree, or of which one fails before others have
// come.
#include <numeric>

#include "catch_compat.h"
#include "ranks.h"

using namespace tutti::internal;
using tutti::internal::test::eventually;
using tutti::internal::test::on_threads;
using tutti::internal::test::Watcher;

namespace {

constexpr std::int64_t kLongMs = 60'000;

bool contains(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}

// The ranks of a job, which tell each other nothing of what they call.
std::vector<Watcher> join_all(int ranks, bool sockets) {
  return test::join_all(ranks, sockets, [](int) { return Witness(); });
}

// The end of a new communicator that is expected to fail, at the latest after its initialisation.
Status failure_of(ControlTree& from, std::uint64_t id, const std::vector<int>& members) {
  auto tree = from.split(id, members);
  if (!tree.is_ok()) return tree.status();
  Status s = (*tree)->all_gather("x", Deadline::after_ms(kLongMs)).status();
  auto failure = std::make_shared<FailureState>();
  if (s.is_ok()) s = (*tree)->watch(failure, {});
  if (s.is_ok() && eventually([&] { return failure->failed(); })) s = failure->status();
  (*tree)->leave();
  return s;
}

const std::string kClash = " has split off a communicator of other ranks, with the same id";
const std::string kForeignClash = "a rank that is not among these" + kClash;

}  // namespace

TEST_CASE("ranks that split off different communicators with one id get an error") {
  const std::size_t first = GENERATE(0u, 1u, 2u, 3u);  // the rank that comes first
  // The group of each rank: of equal sizes, the second larger, and with a common member, which comes to the first.
  const std::vector<int> a{0, 1};
  const auto groups =
      GENERATE_COPY(std::vector<std::vector<int>>{a, a, {2, 3}, {2, 3}},
                    std::vector<std::vector<int>>{a, a, {2, 3, 4, 5}, {2, 3, 4, 5}, {2, 3, 4, 5}, {2, 3, 4, 5}},
                    std::vector<std::vector<int>>{a, a, {1, 2, 3}, {1, 2, 3}});
  std::vector<Watcher> job = join_all(6, false);
  std::vector<Status> statuses(groups.size());
  on_threads(static_cast<int>(groups.size()), [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (r != first) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    statuses[r] = failure_of(*job[r].job.tree, 60, groups[r]);
  });
  for (std::size_t r = 0; r < groups.size(); ++r) {
    const Status& status = statuses[r];
    INFO("rank " << r << " of " << groups.size() << ", first " << first << ": " << status.message());
    CHECK(status.code() == Code::kMismatch);
    CHECK(contains(status, kClash));
    CHECK_FALSE(job[r].failure->failed());
  }
}

TEST_CASE("ranks that come after others have split off different communicators with one id get the same error") {
  std::vector<Watcher> job = join_all(6, false);
  const std::vector<int> smaller{0, 1};
  const std::vector<int> larger{2, 3, 4, 5};
  std::vector<Status> statuses(6);
  auto early = std::move(*job[0].job.tree->split(60, smaller));
  statuses[2] = failure_of(*job[2].job.tree, 60, larger);
  statuses[0] = early->all_gather("x", Deadline::after_ms(kLongMs)).status();
  early.reset();
  for (const std::size_t r : {5u, 1u, 3u, 4u}) statuses[r] = failure_of(*job[r].job.tree, 60, r < 2 ? smaller : larger);
  for (std::size_t r = 0; r < 6; ++r) {
    INFO("rank " << r);
    CHECK(statuses[r].code() == Code::kMismatch);
    CHECK(statuses[r].message() == kForeignClash);
  }
}

TEST_CASE("ranks that use the id of an existing communicator of other ranks fail with its members") {
  std::vector<Watcher> job = join_all(6, false);
  std::vector<Watcher> parts(2);
  std::vector<Status> statuses(6);
  on_threads(2, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    parts[r].job.tree = std::move(*job[r].job.tree->split(60, {1, 0}));
    statuses[r] = parts[r].job.tree->all_gather("x", Deadline::after_ms(kLongMs)).status();
    if (statuses[r].is_ok()) statuses[r] = parts[r].job.tree->watch(parts[r].failure, {});
  });
  for (const Status& status : statuses) REQUIRE(status.message() == "");
  on_threads(6, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (rank >= 2) statuses[r] = failure_of(*job[r].job.tree, 60, {2, 3, 4, 5});
  });
  for (std::size_t r = 0; r < 6; ++r) {
    INFO("rank " << r);
    if (r < 2) REQUIRE(eventually([&] { return parts[r].failure->failed(); }));
    const Status status = r < 2 ? parts[r].failure->status() : statuses[r];
    CHECK(status.code() == Code::kMismatch);
    CHECK(contains(status, kForeignClash));
    CHECK_FALSE(job[r].failure->failed());
  }
}

TEST_CASE("a rank that uses the id of a communicator of its own is refused, and that one is not affected") {
  const bool sockets = GENERATE(true, false);
  std::vector<Watcher> job = join_all(3, sockets);
  std::vector<Watcher> parts(2);
  // Before and after the other member has come.
  parts[0].job.tree = std::move(*job[0].job.tree->split(60, {0, 1}));
  CHECK(job[0].job.tree->split(60, {0, 1}).status().code() == Code::kInvalidUsage);
  CHECK(job[0].job.tree->split(60, {0, 2}).status().code() == Code::kInvalidUsage);
  parts[1].job.tree = std::move(*job[1].job.tree->split(60, {0, 1}));
  CHECK(job[1].job.tree->split(60, {0, 1}).status().code() == Code::kInvalidUsage);
  std::vector<Status> statuses(2);
  on_threads(2, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    auto all = parts[r].job.tree->all_gather(std::to_string(rank), Deadline::after_ms(kLongMs));
    statuses[r] = all.status();
    if (all.is_ok() && *all != std::vector<std::string>{"0", "1"}) statuses[r] = Status::internal("wrong parts");
  });
  for (const Status& status : statuses) CHECK(status.message() == "");
}

TEST_CASE("a member that comes after the others have failed and ended learns the reason") {
  const bool sockets = GENERATE(true, false);
  const std::size_t origin = GENERATE(0u, 1u);
  std::vector<Watcher> job = join_all(4, sockets);
  auto refused = std::move(*job[origin].job.tree->split(60, {0, 1, 2}));
  refused->announce_failure(Status::invalid_argument("no such port"));
  refused->leave();
  refused.reset();
  for (const std::size_t late : {1 - origin, std::size_t{2}}) {
    const Status status = failure_of(*job[late].job.tree, 60, {0, 1, 2});
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message() == "rank " + std::to_string(origin) + ": no such port");
    CHECK_FALSE(job[late].failure->failed());
  }
}

TEST_CASE("failures kept for members that have not come are bounded, the oldest goes first") {
  constexpr int kMembers = 64;
  constexpr std::uint64_t kMany = 1000;
  std::vector<Watcher> job = join_all(kMembers, false);
  std::vector<int> all(kMembers);
  std::iota(all.begin(), all.end(), 0);
  for (std::uint64_t id = 1; id <= kMany; ++id) {
    auto refused = std::move(*job[0].job.tree->split(id, all));
    refused->announce_failure(Status::invalid_argument("no such port"));
    refused->leave();
  }
  const auto told = [&](std::uint64_t id) {
    auto late = std::move(*job[1].job.tree->split(id, all));
    return late->all_gather("x", Deadline::after_ms(50)).status().code();
  };
  CHECK(told(kMany) == Code::kInvalidArgument);
  CHECK(told(kMany - 100) == Code::kInvalidArgument);
  CHECK(told(1) == Code::kTimeout);
  CHECK(told(kMany - 500) == Code::kTimeout);
}
