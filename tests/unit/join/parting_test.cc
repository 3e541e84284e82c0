// Ranks that leave exchange what they have called, and find differences, over sockets and between threads.
#include <atomic>
#include <mutex>

#include "catch_compat.h"
#include "join/in_process.h"
#include "join/process_rank.h"
#include "ranks.h"

using namespace tutti::internal;
using tutti::internal::test::eventually;
using tutti::internal::test::on_threads;
using tutti::internal::test::Watcher;

namespace {

constexpr std::int64_t kLongMs = 60'000;

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

bool contains(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}

struct Ranks {
  Ranks(bool sockets, std::vector<CallSummary> called_by) : calls(std::move(called_by)) {
    watchers = tutti::internal::test::join_all(static_cast<int>(calls.size()), sockets, [this](int rank) {
      Witness witness;
      witness.calls = [this, r = static_cast<std::size_t>(rank)] {
        const std::lock_guard lock(mutex);
        return calls[r];
      };
      return witness;
    });
  }
  // The calls of the rank so far.
  void call(std::size_t rank, CallSummary summary) {
    const std::lock_guard lock(mutex);
    calls[rank] = std::move(summary);
  }
  ControlTree& tree(std::size_t rank) { return *watchers[rank].job.tree; }
  Status status(std::size_t rank) { return watchers[rank].failure->status(); }

  std::mutex mutex;
  std::vector<CallSummary> calls;
  std::vector<Watcher> watchers;
};

}  // namespace

TEST_CASE("ranks that have called the same operations leave without a failure, and all know of all") {
  const bool sockets = GENERATE(true, false);
  for (const std::size_t n : {2u, 6u, 21u}) {
    Ranks ranks(sockets, std::vector<CallSummary>(n, called(3)));
    std::atomic<int> complete{0};
    on_threads(static_cast<int>(n), [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      if (ranks.tree(r).finish(kLongMs)) ++complete;
      ranks.tree(r).leave();
    });
    INFO(n << " ranks, sockets " << sockets);
    CHECK(complete == static_cast<int>(n));
    for (std::size_t r = 0; r < n; ++r) CHECK(ranks.status(r).message() == "");
  }
}

TEST_CASE("a rank that has called different or fewer operations fails all when they leave") {
  const bool sockets = GENERATE(true, false);
  const bool less = GENERATE(true, false);
  for (const std::size_t n : {2u, 6u, 21u}) {
    for (const std::size_t odd : {std::size_t{0}, n - 1}) {
      std::vector<CallSummary> calls(n, called(3));
      calls[odd] = less ? called(2) : called(3, 7);
      Ranks ranks(sockets, std::move(calls));
      on_threads(static_cast<int>(n), [&](int rank) {
        const auto r = static_cast<std::size_t>(rank);
        (void)ranks.tree(r).finish(kLongMs);
        ranks.tree(r).leave();
      });
      INFO(n << " ranks, sockets " << sockets << ", less " << less << ", odd " << odd);
      for (std::size_t r = 0; r < n; ++r) {
        INFO("rank " << r << ": " << ranks.status(r).message());
        CHECK(ranks.status(r).code() == Code::kMismatch);
        const std::string of_odd = "rank " + std::to_string(odd) + (less ? " leaves after 2 op" : " runs call 7 as 3");
        CHECK(contains(ranks.status(r), of_odd));
        CHECK(contains(ranks.status(r), " runs call 0 as 3"));
      }
    }
  }
}

TEST_CASE("a rank that leaves early is compared with those that stay") {
  const bool sockets = GENERATE(true, false);
  std::vector<CallSummary> calls(5, called(3));
  calls[1] = called(3, 7);
  calls[2] = called(9);
  Ranks ranks(sockets, std::move(calls));
  // It has called less than rank 2, which proves nothing while it may still call more.
  CHECK_FALSE(ranks.tree(4).finish(0));
  ranks.tree(4).leave();
  // But rank 1's calls are not the others' calls.
  for (const std::size_t r : {0u, 1u, 2u, 3u}) {
    INFO("rank " << r);
    REQUIRE(eventually([&] { return !ranks.status(r).is_ok(); }));
    CHECK(ranks.status(r).code() == Code::kMismatch);
    CHECK(contains(ranks.status(r), "rank 1 runs call 7 as 3"));
  }
}

TEST_CASE("later calls are compared with those of a rank that has left") {
  const bool sockets = GENERATE(true, false);
  std::vector<CallSummary> calls(5, called(2));
  calls[0] = called(3, 7);
  Ranks ranks(sockets, std::move(calls));
  CHECK_FALSE(ranks.tree(0).finish(0));
  ranks.tree(0).leave();
  for (const std::size_t r : {1u, 2u, 3u, 4u}) {
    INFO("rank " << r);
    REQUIRE(eventually([&] { return ranks.watchers[r].failure->departed(0); }));
    CHECK(ranks.tree(r).compare_with_departed().message() == "");
    ranks.call(r, called(3));
    const Status differs = ranks.tree(r).compare_with_departed();
    CHECK(differs.code() == Code::kMismatch);
    CHECK(contains(differs, "rank 0 runs call 7 as 3"));
    CHECK(contains(differs, "rank " + std::to_string(r) + " runs call 0 as 3"));
    CHECK(ranks.status(r).is_ok());
  }
  // Rank 0's calls are known: no other rank needs to report.
  ranks.tree(4).report_calls(called(3).calls);
  REQUIRE(eventually([&] { return !ranks.status(4).is_ok(); }));
  CHECK(contains(ranks.status(4), "rank 0 runs call 7 as 3"));
}

TEST_CASE("asking all ranks for their calls finds the two that differ") {
  const bool sockets = GENERATE(true, false);
  std::vector<CallSummary> calls(21, called(3));
  calls[17] = called(3, 7);
  Ranks ranks(sockets, std::move(calls));
  ranks.tree(9).compare_calls();
  for (std::size_t r = 0; r < 21; ++r) {
    INFO("rank " << r);
    REQUIRE(eventually([&] { return !ranks.status(r).is_ok(); }));
    CHECK(ranks.status(r).code() == Code::kMismatch);
    CHECK(contains(ranks.status(r), "rank 17 runs call 7 as 3"));
  }
}

TEST_CASE("waiting for leave notices ends with a failure") {
  const bool sockets = GENERATE(true, false);
  Ranks ranks(sockets, std::vector<CallSummary>(3, called(1)));
  std::thread aborts([&] {
    (void)eventually([&] { return ranks.watchers[1].failure->departed(0); });
    ranks.tree(1).announce_failure(Status::aborted("enough"));
  });
  CHECK_FALSE(ranks.tree(0).finish(kLongMs * 1000));
  aborts.join();
  CHECK(ranks.status(0).code() == Code::kAborted);
}

TEST_CASE("a rank waits for others of its process only if they have other threads") {
  Secret job{};
  job[0] = 1;
  Secret another_job{};
  ProcessRank alone;
  alone.enter(another_job);
  CHECK(alone.others_may_come());
  ProcessRank a;
  ProcessRank b;
  a.enter(job);
  b.enter(job);
  // A thread that serves no rank may serve all.
  CHECK_FALSE(a.others_may_come());
  a.touch();
  CHECK(a.others_may_come());
  CHECK_FALSE(b.others_may_come());
  // A thread that outlives the check, because thread ids are reused.
  std::atomic<bool> touched{false};
  std::atomic<bool> end{false};
  std::thread other([&] {
    b.touch();
    touched = true;
    while (!end) std::this_thread::yield();
  });
  CHECK(eventually([&] { return touched.load(); }));
  CHECK(a.others_may_come());
  CHECK_FALSE(b.others_may_come());
  end = true;
  other.join();
  b.touch();
  CHECK_FALSE(a.others_may_come());
  b.leave();
  CHECK(a.others_may_come());
  alone.leave();
}
