// What tutti diagnose says of processes.
#include "monitor/diagnosis.h"

#include <string>
#include <vector>

#include "catch_compat.h"
#include "executor/fingerprint.h"

namespace tutti::internal::test {
namespace {

using monitor::CommunicatorFindings;
using monitor::Finding;
using observe::SeenCall;
using observe::SeenProcess;
using observe::SeenRank;

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

// Rank 0 is process 100, rank 1 is process 101, and so on.
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
  wait.ranks = std::move(ranks);
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
  auto all = monitor::diagnose(processes);
  REQUIRE(all.size() == 1);
  CHECK(all[0].stuck);
  CHECK(text_of(all[0], Finding::Kind::kOperation) ==
        "ranks 0, 2 have been in operation 7, all_reduce(count 100, float, sum) for 12.0 s");
  CHECK(text_of(all[0], Finding::Kind::kBehind) ==
        "rank 1 has not called operation 7; its last was operation 6, all_reduce(count 100, float, sum), which ended "
        "19.0 s ago");
  CHECK(text_of(all[0], Finding::Kind::kWaits) ==
        "rank 2 has waited 12.0 s for rank 1; rank 0 has waited 12.0 s for rank 2");
  CHECK(text_of(all[0], Finding::Kind::kConclusion) == "look at rank 1 (train, pid 101 on a)");
  CHECK_FALSE(monitor::diagnose(processes, 13'000).at(0).stuck);
  // It is in another communicator's operation.
  processes[1].ranks.push_back(processes[1].ranks[0]);
  processes[1].ranks[1].communicator = 0xdef;
  processes[1].ranks[1].inside = true;
  CHECK(text_of(monitor::diagnose(processes).at(0), Finding::Kind::kConclusion) ==
        "look at rank 1 (train, pid 101 on a), which is inside communicator 0000000000000def");
}

TEST_CASE("diagnosis: of several ranks inside, the longest time counts") {
  std::vector<SeenProcess> processes{process(0, 3, {all_reduce(7, 12)}, true), process(1, 3, {all_reduce(7, 3)}, true),
                                     process(2, 3, {all_reduce(7, 9)}, true)};
  wait_for(&processes[1], {0}, 3'000);
  CHECK(text_of(monitor::diagnose(processes).at(0), Finding::Kind::kOperation) ==
        "ranks 0-2 have been in operation 7, all_reduce(count 100, float, sum) for 12.0 s");
}

TEST_CASE("diagnosis: a rank that is behind because it waits itself is not the one") {
  std::vector<SeenProcess> processes{process(0, 3, {all_reduce(7, 5)}, true), process(1, 3, {all_reduce(6, 5)}, true)};
  wait_for(&processes[0], {1}, 5'000);
  wait_for(&processes[1], {2}, 5'000);
  const auto all = monitor::diagnose(processes);
  CHECK(text_of(all[0], Finding::Kind::kBehind) ==
        "rank 1 has not called operation 7; it is still in operation 6, all_reduce(count 100, float, sum), for 5.0 s");
  CHECK(text_of(all[0], Finding::Kind::kConclusion) == "look at rank 2, which was not found here");
}

TEST_CASE("diagnosis: ranks that run, or do nothing, are not stuck") {
  std::vector<SeenProcess> processes{process(0, 2, {all_reduce(7, 0)}, true), process(1, 2, {all_reduce(9, 0)}, false)};
  auto all = monitor::diagnose(processes);
  CHECK_FALSE(all.at(0).stuck);
  CHECK(text_of(all[0], Finding::Kind::kOperation) ==
        "ranks 0, 1 are running, up to operation 9, all_reduce(count 100, float, sum)");
  CHECK(text_of(all[0], Finding::Kind::kBehind).empty());
  wait_for(&processes[0], {1}, 300);
  CHECK_FALSE(monitor::diagnose(processes).at(0).stuck);
  // Long inside, but it gets no processor to say that it waits.
  processes = {process(0, 2, {all_reduce(7, 9)}, true), process(1, 2, {all_reduce(6, 9)}, false)};
  all = monitor::diagnose(processes);
  CHECK(all.at(0).stuck);
  CHECK(text_of(all[0], Finding::Kind::kConclusion) == "look at rank 1 (train, pid 101 on a)");
  processes = {process(0, 2, {}, false), process(1, 2, {}, false)};
  all = monitor::diagnose(processes);
  CHECK_FALSE(all.at(0).stuck);
  CHECK(text_of(all[0], Finding::Kind::kOperation) == "ranks 0, 1 have called no collective");
  processes = {process(0, 2, {all_reduce(7, 3)}, false), process(1, 2, {all_reduce(7, 3)}, false)};
  CHECK(text_of(monitor::diagnose(processes).at(0), Finding::Kind::kOperation) ==
        "ranks 0, 1 are in no collective; the last was operation 7, all_reduce(count 100, float, sum), which began "
        "3.0 s ago");
}

TEST_CASE("diagnosis: ranks in an agreement wait for those that are not") {
  std::vector<SeenProcess> processes{process(0, 2, {all_reduce(7, 30)}, false),
                                     process(1, 2, {all_reduce(7, 30)}, false)};
  processes[0].ranks[0].agreement = SeenRank::Agreement{"tuttiCommShrink", kNow - 8 * kSecond};
  const auto all = monitor::diagnose(processes);
  CHECK(all.at(0).stuck);
  CHECK(text_of(all[0], Finding::Kind::kOperation).find("rank 0 has been in tuttiCommShrink, for 8.0 s") !=
        std::string::npos);
  CHECK(text_of(all[0], Finding::Kind::kConclusion) == "look at rank 1 (train, pid 101 on a)");
  CHECK_FALSE(monitor::diagnose(processes, 9'000).at(0).stuck);
}

TEST_CASE("diagnosis: the awaited rank is looked at if all ranks have called") {
  std::vector<SeenProcess> processes;
  for (int rank = 0; rank < 3; ++rank) processes.push_back(process(rank, 3, {all_reduce(7, 5)}, true));
  wait_for(&processes[0], {1}, 5'000);
  wait_for(&processes[2], {1}, 5'000);
  CHECK(text_of(monitor::diagnose(processes).at(0), Finding::Kind::kConclusion) ==
        "look at rank 1 (train, pid 101 on a)");
  // All of them wait.
  wait_for(&processes[1], {0}, 5'000);
  CHECK(text_of(monitor::diagnose(processes).at(0), Finding::Kind::kConclusion) == "ranks 0, 1 wait for each other");
  processes[0].ranks[0].wait->others = true;
  CHECK(
      text_of(monitor::diagnose(processes).at(0), Finding::Kind::kWaits) ==
      "rank 1 has waited 5.0 s for rank 0; rank 2 has waited 5.0 s for rank 1; rank 0 has waited 5.0 s for rank 1 and "
      "others");
}

TEST_CASE("diagnosis: stopped processes, failures and different calls") {
  std::vector<SeenProcess> processes{process(0, 2, {all_reduce(7, 0)}, false),
                                     process(1, 2, {all_reduce(7, 0)}, false)};
  processes[1].state = 'T';
  CHECK(text_of(monitor::diagnose(processes).at(0), Finding::Kind::kStopped) ==
        "the process of rank 1 (train, pid 101 on a) is stopped; kill -CONT 101 continues it");
  CHECK(text_of(monitor::diagnose(processes).at(0), Finding::Kind::kConclusion) ==
        "look at rank 1 (train, pid 101 on a)");
  processes[1].state = 't';
  CHECK(text_of(monitor::diagnose(processes).at(0), Finding::Kind::kStopped) ==
        "the process of rank 1 (train, pid 101 on a) is held by a debugger");
  processes[1].state = 'S';
  processes[1].ranks[0].failure = SeenRank::Failure{"rank 0 died", kNow, true};
  auto all = monitor::diagnose(processes);
  CHECK(text_of(all[0], Finding::Kind::kFailed) == "it has failed on rank 1: rank 0 died");
  // The program goes on without it, also if the rank has waited then.
  CHECK_FALSE(all.at(0).stuck);
  processes[1].ranks[0].failure->inside = true;
  processes[1].ranks[0].failure->wait = SeenRank::Wait{60'000, {0}, false};
  CHECK_FALSE(monitor::diagnose(processes).at(0).stuck);
  CHECK(all.at(0).failed);
  processes = {process(0, 2, {all_reduce(6, 0), all_reduce(7, 0)}, true),
               process(1, 2, {all_reduce(6, 0), all_reduce(7, 0, 99)}, true)};
  all = monitor::diagnose(processes);
  CHECK(all.at(0).stuck);
  CHECK(text_of(all[0], Finding::Kind::kDiffers) ==
        "rank 0 has called operation 7, all_reduce(count 100, float, sum), and rank 1 operation 7, "
        "all_reduce(count 99, float, sum)");
}

TEST_CASE("diagnosis: processes that have ended") {
  // Rank 1 was killed before its seventh operation; the others failed for that, and ended later.
  std::vector<SeenProcess> processes{process(0, 4, {all_reduce(6, 20), all_reduce(7, 12)}, false),
                                     process(1, 4, {all_reduce(6, 20)}, false),
                                     process(2, 4, {all_reduce(6, 20), all_reduce(7, 12)}, false)};
  for (SeenProcess& one : processes) {
    one.ended = true;
    one.ranks[0].last_ns = kNow;
  }
  for (const std::size_t i : {0u, 2u}) {
    wait_for(&processes[i], {1}, 10'000);
    processes[i].ranks[0].failure =
        SeenRank::Failure{"rank 1 has died", kNow - 2 * kSecond, true, {}, processes[i].ranks[0].wait};
  }
  auto all = monitor::diagnose(processes);
  CHECK(all.at(0).failed);
  CHECK(text_of(all[0], Finding::Kind::kOperation) ==
        "ranks 0, 2 have been in operation 7, all_reduce(count 100, float, sum) for 10.0 s");
  CHECK(text_of(all[0], Finding::Kind::kEnded) ==
        "the process of rank 1 (train, pid 101 on a) has ended, after operation 6, all_reduce(count 100, float, sum)");
  CHECK(text_of(all[0], Finding::Kind::kConclusion) == "look at rank 1 (train, pid 101 on a)");
  CHECK(text_of(all[0], Finding::Kind::kUnread) ==
        "rank 3 has no file here: it has left without a failure, or ran elsewhere");
  // Rank 0 was killed with it.
  processes[0].ranks[0].failure.reset();
  processes[0].ranks[0].inside = true;
  all = monitor::diagnose(processes);
  CHECK(all.at(0).failed);
  CHECK(text_of(all[0], Finding::Kind::kConclusion) == "look at rank 1 (train, pid 101 on a)");
  // All were killed while they stood still.
  for (SeenProcess& one : processes) one.ranks[0].failure.reset();
  processes[0].ranks[0].inside = processes[2].ranks[0].inside = true;
  all = monitor::diagnose(processes);
  CHECK(all.at(0).stuck);
  CHECK_FALSE(all[0].failed);
  CHECK(text_of(all[0], Finding::Kind::kConclusion) == "look at rank 1 (train, pid 101 on a)");
}

TEST_CASE("diagnosis: ranks that were not found, and communicators of one rank") {
  const std::vector<SeenProcess> processes{process(1, 4, {all_reduce(7, 0)}, true)};
  CHECK(
      text_of(monitor::diagnose(processes).at(0), Finding::Kind::kUnread) ==
      "ranks 0, 2, 3 were not found here: on another host, in another container or of another user, or they have left "
      "or died");
  // The same number in two processes: two communicators.
  SeenProcess other = process(0, 1, {}, false);
  other.pid = 7;
  CHECK(monitor::diagnose({process(0, 1, {}, false), other}).size() == 2);
}

TEST_CASE("diagnosis: the rank that comes last in most operations") {
  const auto calls = [](std::int64_t after_ns) {
    std::vector<SeenCall> all;
    for (std::uint32_t number = 1; number <= 40; ++number) {
      all.push_back(all_reduce(number, 41 - number));
      // Each comes last at some time.
      *all.back().begun_ns += number % 10 == 0 ? -after_ns : after_ns;
    }
    return all;
  };
  const auto late = [&](std::int64_t after_ns) {
    const std::vector<SeenProcess> processes{process(0, 3, calls(0), false), process(1, 3, calls(after_ns), false),
                                             process(2, 3, calls(1000), false)};
    const auto all = monitor::diagnose(processes);
    CHECK_FALSE(all.at(0).stuck);
    return text_of(all[0], Finding::Kind::kLate);
  };
  CHECK(late(3'000'000) ==
        "rank 1 (train, pid 101 on a) began 36 of the last 40 operations after all others here, 2.9 ms on average");
  CHECK(late(50'000).empty());
}

TEST_CASE("diagnosis: why a rank is late") {
  // Each operation is a second after the one before, and rank 1 begins it 40 ms after the others.
  const auto finding = [](const observe::Outside& late, const observe::Outside& others) {
    std::vector<SeenProcess> processes;
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<SeenCall> calls;
      for (std::uint32_t number = 1; number <= 20; ++number) {
        calls.push_back(all_reduce(number, 21 - number));
        calls.back().ended_ns = *calls.back().begun_ns + 50'000'000;
        if (rank == 1) *calls.back().begun_ns += 40'000'000;
        calls.back().before = rank == 1 ? late : others;
      }
      processes.push_back(process(rank, 3, std::move(calls), false));
    }
    const auto all = monitor::diagnose(processes);
    for (const Finding& found : all.at(0).findings) {
      if (found.kind == Finding::Kind::kLate) return found;
    }
    return Finding();
  };
  const Finding computes = finding({990'000, 900'000, 50'000}, {950'000, 860'000, 50'000});
  CHECK(computes.text ==
        "rank 1 (train, pid 101 on a) began 20 of the last 20 operations after all others here, 40.0 ms on average: it "
        "computes longer");
  CHECK(computes.ranks == std::vector<int>{1});
  CHECK(computes.cause == "computes");
  CHECK(finding({990'000, 900'000, 80'000}, {950'000, 900'000, 40'000}).cause == "processor");
  CHECK(finding({990'000, 900'000, 20'000}, {950'000, 900'000, 20'000}).cause == "sleeps");
  CHECK(finding({990'000, 900'000, 20'000, 60'000}, {950'000, 900'000, 20'000}).cause == "elsewhere");
  // Others did the same.
  CHECK(finding({990'000, 900'000, 50'000}, {990'000, 900'000, 50'000}).cause == "unknown");
}

TEST_CASE("diagnosis: a link that holds up the operations") {
  // Rank 1 waits for the bytes of rank 0, which has ended its part, or which the network does not take from it.
  const auto findings = [](std::int64_t sender_ends_ms, std::uint32_t room_us, std::uint32_t data_us,
                           std::uint32_t delay_us = 0) {
    std::vector<SeenProcess> processes;
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<SeenCall> calls;
      for (std::uint32_t number = 1; number <= 20; ++number) {
        calls.push_back(all_reduce(number, 21 - number));
        calls.back().ended_ns = *calls.back().begun_ns + (rank == 0 ? sender_ends_ms : 200) * 1'000'000;
        if (rank == 0) calls.back().room = {1, room_us};
        if (rank == 1) calls.back().delay_us = delay_us;
        if (rank == 1) calls.back().data = {data_us == 0 ? -1 : 0, data_us};
      }
      processes.push_back(process(rank, 2, std::move(calls), false));
    }
    return monitor::diagnose(processes).at(0);
  };
  const std::string text =
      "the link from rank 0 to rank 1 is slow: in 20 of the last operations, its bytes were on the way for 150 ms on "
      "average";
  CHECK(text_of(findings(200, 150'000, 180'000), Finding::Kind::kLate) == text);
  CHECK(text_of(findings(50, 0, 180'000), Finding::Kind::kLate) == text);
  // It waited for bytes that rank 0 did not have; or for none; or it had no processor to take them.
  CHECK(text_of(findings(200, 0, 180'000), Finding::Kind::kLate).empty());
  CHECK(text_of(findings(200, 150'000, 0), Finding::Kind::kLate).empty());
  CHECK(text_of(findings(50, 0, 180'000, 140'000), Finding::Kind::kLate).empty());
}

TEST_CASE("diagnosis: times") {
  CHECK(monitor::describe_time(999) == "999 ms");
  CHECK(monitor::describe_time(1250) == "1.2 s");
  CHECK(monitor::describe_time(180'000) == "3 min");
  CHECK(monitor::describe_time(7'200'000) == "2 h");
}

}  // namespace tutti::internal::test
