// What tutti diagnose says of processes.
#include "tools/diagnose/diagnosis.h"

#include <string>
#include <vector>

#include "catch_compat.h"
#include "executor/fingerprint.h"

namespace tutti::internal::test {
namespace {

using observe::SeenCall;
using observe::SeenProcess;
using observe::SeenRank;
using tools::CommunicatorFindings;
using tools::Finding;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kNow = 1000 * kSecond;

SeenCall all_reduce(std::uint32_t number, std::int64_t begun_s_ago, std::uint64_t count = 100) {
  SeenCall call;
  call.number = number;
  call.call = executor::call_word(Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum);
  call.count = count;
  call.begun_ns = kNow - begun_s_ago * kSecond;
  return call;
}

// Each rank is a process of its own, with pid 100 + rank.
SeenProcess process(int rank, int ranks, std::vector<SeenCall> calls, bool inside) {
  SeenRank seen;
  seen.communicator = 0xabc;
  seen.rank = rank;
  seen.ranks = ranks;
  seen.number = calls.empty() ? 0 : calls.back().number;
  seen.inside = inside;
  seen.calls = std::move(calls);
  SeenProcess one;
  one.pid = 100 + rank;
  one.host = "a";
  one.program = "train";
  one.state = 'S';
  one.read_ns = kNow;
  one.ranks.push_back(std::move(seen));
  return one;
}

void wait_for(SeenProcess* process, std::vector<int> ranks, std::int64_t ms) {
  SeenRank::Wait wait;
  wait.ms = ms;
  wait.count = static_cast<int>(ranks.size());
  wait.ranks = std::move(ranks);
  wait.seen_ns = kNow;
  process->ranks.front().wait = std::move(wait);
}

std::string text_of(const CommunicatorFindings& findings, Finding::Kind kind) {
  std::string text;
  for (const Finding& finding : findings.findings) {
    if (finding.kind == kind) text += (text.empty() ? "" : "; ") + finding.text;
  }
  return text;
}

}  // namespace

TEST_CASE("diagnosis: a rank that has not called is named") {
  SeenCall before = all_reduce(6, 20);
  before.ended_ns = kNow - 19 * kSecond;
  std::vector<SeenProcess> processes{process(0, 3, {before, all_reduce(7, 12)}, true), process(1, 3, {before}, false),
                                     process(2, 3, {before, all_reduce(7, 12)}, true)};
  wait_for(&processes[0], {2}, 12'000);
  wait_for(&processes[2], {1}, 12'000);
  const auto all = tools::diagnose(processes);
  REQUIRE(all.size() == 1);
  CHECK(all[0].stuck);
  CHECK(text_of(all[0], Finding::Kind::kOperation) ==
        "ranks 0, 2 have been in operation 7, all_reduce(count 100, float, sum), for 12.0 s");
  CHECK(
      text_of(all[0], Finding::Kind::kBehind) ==
      "rank 1 has not called operation 7; its last, operation 6, all_reduce(count 100, float, sum), ended 19.0 s ago");
  CHECK(text_of(all[0], Finding::Kind::kWaits) ==
        "rank 2 has waited 12.0 s for rank 1; rank 0 has waited 12.0 s for rank 2");
  CHECK(text_of(all[0], Finding::Kind::kConclusion) == "look at rank 1 (train, pid 101 on a)");
}

TEST_CASE("diagnosis: short waits, and ranks outside of operations, do not count") {
  std::vector<SeenProcess> processes{process(0, 2, {all_reduce(7, 0)}, true), process(1, 2, {all_reduce(6, 0)}, false)};
  wait_for(&processes[0], {1}, 300);
  CHECK_FALSE(tools::diagnose(processes).at(0).stuck);
  processes = {process(0, 2, {}, false), process(1, 2, {}, false)};
  const auto all = tools::diagnose(processes);
  CHECK_FALSE(all.at(0).stuck);
  CHECK(text_of(all[0], Finding::Kind::kOperation) == "ranks 0, 1 have called no collective");
}

TEST_CASE("diagnosis: the awaited rank is looked at if all ranks have called") {
  std::vector<SeenProcess> processes;
  for (int rank = 0; rank < 3; ++rank) processes.push_back(process(rank, 3, {all_reduce(7, 5)}, true));
  wait_for(&processes[0], {1}, 5'000);
  wait_for(&processes[2], {1}, 5'000);
  CHECK(text_of(tools::diagnose(processes).at(0), Finding::Kind::kConclusion) ==
        "look at rank 1 (train, pid 101 on a)");
  // All of them wait.
  wait_for(&processes[1], {0}, 5'000);
  CHECK(text_of(tools::diagnose(processes).at(0), Finding::Kind::kConclusion) == "ranks 0, 1 wait for each other");
}

TEST_CASE("diagnosis: stopped processes, failures and different calls are trouble") {
  std::vector<SeenProcess> processes{process(0, 2, {all_reduce(7, 0)}, false),
                                     process(1, 2, {all_reduce(7, 0)}, false)};
  processes[1].state = 'T';
  CHECK(text_of(tools::diagnose(processes).at(0), Finding::Kind::kStopped) ==
        "the process of rank 1 (train, pid 101 on a) is stopped; kill -CONT 101 continues it");
  processes[1].state = 'S';
  processes[1].ranks[0].failure = "rank 0 died";
  auto all = tools::diagnose(processes);
  CHECK(all.at(0).stuck);
  CHECK(text_of(all[0], Finding::Kind::kFailed) == "it has failed on rank 1: rank 0 died");
  processes = {process(0, 2, {all_reduce(6, 0), all_reduce(7, 0)}, true),
               process(1, 2, {all_reduce(6, 0), all_reduce(7, 0, 99)}, true)};
  all = tools::diagnose(processes);
  CHECK(all.at(0).stuck);
  CHECK(text_of(all[0], Finding::Kind::kDiffers) ==
        "rank 0 has called operation 7, all_reduce(count 100, float, sum), and rank 1 operation 7, "
        "all_reduce(count 99, float, sum)");
}

TEST_CASE("diagnosis: ranks that were not read, and communicators of one rank") {
  const std::vector<SeenProcess> processes{process(1, 4, {all_reduce(7, 0)}, true)};
  CHECK(text_of(tools::diagnose(processes).at(0), Finding::Kind::kUnread) ==
        "ranks 0, 2, 3 are in no process that was read: on another host, of another user, or dead");
  // The same number in two processes: two communicators.
  SeenProcess other = process(0, 1, {}, false);
  other.pid = 7;
  CHECK(tools::diagnose({process(0, 1, {}, false), other}).size() == 2);
}

TEST_CASE("diagnosis: the rank for which the others wait in most operations") {
  const auto calls = [](std::int64_t after_ns) {
    std::vector<SeenCall> all;
    for (std::uint32_t number = 1; number <= 40; ++number) {
      all.push_back(all_reduce(number, 41 - number));
      // Each comes last at some time.
      all.back().begun_ns += number % 10 == 0 ? -after_ns : after_ns;
    }
    return all;
  };
  const auto late = [&](std::int64_t after_ns) {
    const std::vector<SeenProcess> processes{process(0, 3, calls(0), false), process(1, 3, calls(after_ns), false),
                                             process(2, 3, calls(1000), false)};
    const auto all = tools::diagnose(processes);
    CHECK_FALSE(all.at(0).stuck);
    return text_of(all[0], Finding::Kind::kLate);
  };
  CHECK(late(3'000'000) ==
        "rank 1 (train, pid 101 on a) began 36 of the last 40 operations after all others; these waited for it, "
        "2.9 ms on average");
  CHECK(late(50'000).empty());
}

TEST_CASE("diagnosis: times") {
  CHECK(tools::describe_time(999) == "999 ms");
  CHECK(tools::describe_time(1250) == "1.2 s");
  CHECK(tools::describe_time(180'000) == "3 min");
  CHECK(tools::describe_time(7'200'000) == "2 h");
}

}  // namespace tutti::internal::test
