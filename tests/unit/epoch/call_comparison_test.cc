// Comparison of two ranks' histories.
#include "control/call_comparison.h"

#include <string>

#include "catch_compat.h"
#include "epoch/call_history.h"

using namespace tutti::internal;

namespace {

bool contains(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}

void broadcast(CallHistory* history, std::int32_t root, int times = 1) {
  for (int i = 0; i < times; ++i) {
    (void)history->begin(Collective::kBroadcast, DataType::kFloat32, ReduceOp::kSum, root, 40);
  }
}

}  // namespace

TEST_CASE("a history is the same after the same calls only") {
  CallHistory a;
  CallHistory b;
  CHECK(a.hash() == b.hash());
  const auto first = a.begin(Collective::kBroadcast, DataType::kFloat32, ReduceOp::kSum, 0, 40);
  CHECK(first == b.begin(Collective::kBroadcast, DataType::kFloat32, ReduceOp::kSum, 0, 40));
  CHECK(a.hash() == b.hash());
  broadcast(&a, 0);
  broadcast(&b, 1);
  CHECK(a.hash() != b.hash());
  // The difference shows in all later calls.
  for (int i = 0; i < 100; ++i) {
    const auto ours = a.begin(Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, 0, 4);
    const auto theirs = b.begin(Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, 0, 4);
    CHECK(a.hash() != b.hash());
    CHECK(executor::without_history(ours) == executor::without_history(theirs));
    CHECK(executor::same_call(ours, theirs));
    if (i == 0) CHECK(ours != theirs);
  }
}

TEST_CASE("a call of no elements is part of the history") {
  CallHistory a;
  CallHistory b;
  (void)a.begin(Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, 0, 0);
  (void)b.begin(Collective::kAllReduce, DataType::kFloat64, ReduceOp::kSum, 0, 0);
  CHECK(a.hash() != b.hash());
}

TEST_CASE("a summary has the last calls, the oldest first") {
  CallHistory history;
  broadcast(&history, 3, 20);
  const executor::PlanIdentity plan{7, "by ring"};
  history.set_plan(plan);
  const CallSummary summary = history.summary();
  CHECK(summary.operations == 20);
  CHECK(summary.hash == history.hash());
  REQUIRE(summary.calls.size() == CallHistory::kKept);
  CHECK(summary.calls.front().sequence == 5);
  CHECK(summary.calls.back().sequence == 20);
  CHECK(summary.calls.back().text == "operation 20, broadcast(count 40, float, root 3)");
  CHECK(summary.calls.back().plan == "by ring");
  CHECK(CallHistory().summary().calls.empty());
}

TEST_CASE("a summary has all of the last calls where their numbers begin again") {
  for (const std::uint32_t before : {UINT32_MAX - 20, UINT32_MAX - 8, UINT32_MAX - 1}) {
    CallHistory history(before);
    broadcast(&history, 3, 20);
    const CallSummary summary = history.summary();
    CHECK(summary.operations == before + 20);
    CHECK(summary.hash == history.hash());
    REQUIRE(summary.calls.size() == CallHistory::kKept);
    for (std::uint32_t i = 0; i < CallHistory::kKept; ++i) CHECK(summary.calls[i].sequence == before + 5 + i);
  }
  // The last operation with a slot has number 0.
  CallHistory history(UINT32_MAX - 3);
  broadcast(&history, 1, 4);
  CHECK(history.sequence() == 0);
  CHECK(history.summary().calls.size() == 4);
  CHECK(history.summary().hash == history.hash());
}

TEST_CASE("a rank that is further has not called a different operation") {
  CallHistory a;
  CallHistory b;
  broadcast(&a, 0, 5);
  broadcast(&b, 0, 2);
  CHECK(contradiction(0, a.summary(), 1, b.summary()).is_ok());
  CHECK(contradiction(1, b.summary(), 0, a.summary()).is_ok());
  for (const bool turned : {false, true}) {
    const Status s = turned ? difference(1, b.summary(), 0, a.summary()) : difference(0, a.summary(), 1, b.summary());
    CHECK(s.code() == Code::kMismatch);
    CHECK(contains(s, "rank 1 leaves after 2 operations, rank 0 runs operation 3, broadcast(count 40, float, root 0)"));
  }
  broadcast(&b, 0, 3);
  CHECK(difference(0, a.summary(), 1, b.summary()).is_ok());
}

TEST_CASE("the first call that differs is named") {
  CallHistory a;
  CallHistory b;
  broadcast(&a, 0, 3);
  broadcast(&b, 0, 3);
  broadcast(&a, 1);
  broadcast(&b, 2);
  broadcast(&a, 0, 4);
  const Status s = contradiction(5, a.summary(), 9, b.summary());
  CHECK(s.code() == Code::kMismatch);
  CHECK(contains(s, "rank 5 runs operation 4, broadcast(count 40, float, root 1)"));
  CHECK(contains(s, "rank 9 runs operation 4, broadcast(count 40, float, root 2)"));
}

TEST_CASE("a difference in forgotten calls is still detected") {
  CallHistory a;
  CallHistory b;
  broadcast(&a, 1);
  broadcast(&b, 2);
  broadcast(&a, 0, 30);
  broadcast(&b, 0, 30);
  CHECK(contradiction(0, a.summary(), 1, b.summary()).code() == Code::kMismatch);
  // Far apart: the last calls have no number in common, and the hashes at a common number are not known.
  broadcast(&a, 0, 30);
  CHECK(contradiction(0, a.summary(), 1, b.summary()).is_ok());
  CHECK(difference(0, a.summary(), 1, b.summary()).code() == Code::kMismatch);
  // One begins right after the other's end: the hash before it is known.
  CallHistory c;
  broadcast(&c, 1);
  broadcast(&c, 0, 31);
  CHECK(contradiction(0, c.summary(), 1, b.summary()).code() == Code::kMismatch);
}
