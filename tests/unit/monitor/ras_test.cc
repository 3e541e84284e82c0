// What the server for NCCL's RAS protocol says of a job.
#include <unistd.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "catch_compat.h"
#include "executor/fingerprint.h"
#include "monitor/job_reading.h"
#include "monitor/rank_report.h"
#include "monitor/ras_events.h"
#include "monitor/ras_report.h"
#include "os/clock.h"

namespace tutti::internal::test {
namespace {

using observe::SeenCall;
using observe::SeenProcess;
using observe::SeenRank;

SeenProcess seen_process(int rank, int ranks, std::uint32_t calls, bool inside) {
  SeenRank seen;
  seen.communicator = 0xabc;
  seen.rank = rank;
  seen.ranks = ranks;
  seen.number = calls;
  seen.inside = inside;
  seen.counts[static_cast<std::size_t>(Collective::kAllReduce)] = calls;
  if (calls > 0) {
    SeenCall call;
    call.number = calls;
    call.call = executor::call_word(Collective::kAllReduce, DataType::kFloat64, ReduceOp::kSum);
    call.count = 10;
    call.begun_ns = now_ns() - 3'000'000'000;
    if (!inside) call.ended_ns = now_ns() - 2'000'000'000;
    seen.calls.push_back(call);
  }
  if (inside) seen.wait = SeenRank::Wait{2500, {ranks - 1}, false};
  SeenProcess process;
  process.pid = 1'000'000'000 + rank;  // none has such a number
  process.host = "a";
  process.program = "train";
  process.state = 'S';
  process.read_ns = now_ns();
  process.ranks.push_back(std::move(seen));
  return process;
}

TEST_CASE("monitor: the report for programs has NCCL's keys") {
  std::vector<SeenProcess> processes{seen_process(0, 4, 6, true), seen_process(1, 4, 6, true),
                                     seen_process(3, 4, 5, false)};
  processes[1].state = 'T';
  SeenProcess other = seen_process(0, 1, 0, false);
  other.pid = 77;
  other.ranks.front().communicator = 0xdef;
  processes.push_back(other);
  const auto reading = monitor::reading_of(processes, processes[0].pid);
  const auto json = nlohmann::json::parse(monitor::ras_json(reading));
  for (const char* const key : {"nccl_version", "cuda_runtime_version", "cuda_driver_version", "timestamp",
                                "communicators_count", "communicators", "ras"}) {
    INFO(key);
    CHECK(json.contains(key));
  }
  CHECK(json["communicators_count"] == 1);
  const auto& communicator = json["communicators"][0];
  CHECK(communicator["hash"] == "0xabc");
  CHECK((communicator["size"] == 4 && communicator["ranks_count"] == 2 && communicator["missing_ranks_count"] == 2));
  const auto& first = communicator["ranks"][0];
  CHECK((first["rank"] == 0 && first["host"] == "a" && first["pid"] == processes[0].pid));
  CHECK(first["status"] == nlohmann::json{{"init_state", 0},
                                          {"async_error", 0},
                                          {"finalize_called", false},
                                          {"destroy_flag", false},
                                          {"abort_flag", false}});
  CHECK((first["collective_counts"]["AllReduce"] == 6 && first["collective_counts"]["Broadcast"] == 0));
  CHECK(first["collective_counts"].size() == kCollectives);
  const auto& current = first["current"];
  CHECK((current["collective"] == "AllReduce" && current["seq"] == 6 && current["state"] == "waiting"));
  CHECK((current["count"] == 10 && current["bytes"] == 80 && current["since_ms"] == 2500));
  CHECK(current["waits_for"] == nlohmann::json{3});
  const auto& late = communicator["ranks"][1];
  CHECK((late["rank"] == 3 && late["current"]["state"] == "done" && late["current"]["seq"] == 5));
  CHECK(late["current"]["since_ms"] >= 2000);
  const auto& stopped = communicator["missing_ranks"][0];
  CHECK((stopped["rank"] == 1 && stopped["status"]["unresponsive"] == true));
  CHECK((stopped["status"]["considered_dead"] == false && stopped["status"]["stopped"] == true));
  const auto& unknown = communicator["missing_ranks"][1];
  CHECK((unknown["rank"] == 2 && unknown["host"] == "unknown" && unknown["pid"] == -1));
  CHECK(unknown["status"]["unresponsive"] == false);
  CHECK(communicator["stuck"] == true);
  // The text names the rank that is behind.
  const std::string text = monitor::ras_text(reading, true);
  CHECK(text.find("communicator 0000000000000abc of 4 ranks: stands still\n") != std::string::npos);
  CHECK(text.find("rank 3 has not called operation 6") != std::string::npos);
  CHECK(text.find("rank 0 (train, pid 1000000000 on a): waits 2.5 s for rank 3; operation 6, all_reduce(") !=
        std::string::npos);
}

TEST_CASE("monitor: the report of a rank that has called nothing, or has failed") {
  SeenProcess process = seen_process(0, 1, 0, false);
  process.ranks.front().failure = SeenRank::Failure{"rank 1 has died", now_ns(), false};
  const auto json = nlohmann::json::parse(monitor::ras_json(monitor::reading_of({process}, process.pid)));
  const auto& rank = json["communicators"][0]["ranks"][0];
  CHECK(rank["current"].is_null());
  CHECK((rank["status"]["async_error"] == 6 && rank["failure"] == "rank 1 has died"));
  CHECK(nlohmann::json::parse(monitor::ras_json({}))["communicators"].empty());
  CHECK(monitor::ras_text({}, false).find("no communicator") != std::string::npos);
}

TEST_CASE("monitor: what a rank tells the monitors of other hosts") {
  SeenProcess process = seen_process(2, 4, 6, true);
  SeenRank& rank = process.ranks.front();
  rank.transfer = SeenRank::Transfer{true, 3, 400};
  rank.agreement = SeenRank::Agreement{"tuttiCommAgree", process.read_ns - 5'000'000};
  rank.failure = SeenRank::Failure{"rank 1 has died\x1b[2J", process.read_ns - 7'000'000, true};
  const std::string bytes = monitor::pack_rank(process, rank);
  CHECK((!bytes.empty() && bytes.size() <= kMostReportBytes));
  constexpr std::int64_t kThen = 1'000'000'000'000;
  const auto read = monitor::unpack_rank(bytes, 0xabc, 2, 4, {"b", 77}, kThen);
  REQUIRE(read);
  CHECK((read->host == "b" && read->pid == 77 && read->program == "train" && !read->stopped()));
  REQUIRE(read->ranks.size() == 1);
  const SeenRank& seen = read->ranks.front();
  CHECK((seen.communicator == 0xabc && seen.rank == 2 && seen.ranks == 4 && seen.number == 6 && seen.inside));
  CHECK(seen.counts == rank.counts);
  REQUIRE((seen.last() != nullptr && seen.wait && seen.transfer && seen.agreement && seen.failure));
  CHECK((seen.last()->call == rank.last()->call && seen.last()->count == 10 && !seen.last()->ended_ns));
  CHECK(kThen - seen.last()->begun_ns.value() == process.read_ns - rank.last()->begun_ns.value());
  CHECK((seen.wait->ms == 2500 && seen.wait->ranks == std::vector<int>{3} && !seen.wait->others));
  CHECK((seen.transfer->sends && seen.transfer->peer == 3 && seen.transfer->bytes == 400));
  CHECK((seen.agreement->call == "tuttiCommAgree" && seen.agreement->since_ns == kThen - 5'000'000));
  CHECK((seen.failure->at_ns == kThen - 7'000'000 && seen.failure->inside));
  CHECK(seen.failure->error.find('\x1b') == std::string::npos);
  // Damaged bytes are nothing, or some rank of the communicator.
  CHECK(!monitor::unpack_rank("", 0xabc, 2, 4, {"b", 77}, kThen));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK(!monitor::unpack_rank(bytes.substr(0, size), 0xabc, 2, 4, {"b", 77}, kThen));
  }
  for (std::size_t i = 0; i < bytes.size() * 8; ++i) {
    std::string damaged = bytes;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ 1 << i % 8);
    const auto some = monitor::unpack_rank(damaged, 0xabc, 2, 4, {"b", 77}, kThen);
    if (!some || !some->ranks.front().wait) continue;
    for (const int awaited : some->ranks.front().wait->ranks) CHECK((awaited >= 0 && awaited < 4));
  }
}

TEST_CASE("monitor: ranks of other hosts, from what they have answered") {
  const std::vector<SeenProcess> here{seen_process(0, 5, 6, true)};
  const int own = here[0].pid;
  const SeenProcess there = seen_process(1, 5, 5, false);
  monitor::Survey survey;
  for (int rank = 1; rank < 5; ++rank) survey.places[rank] = {"b", 200 + rank};
  survey.asked = true;
  Answer answer;
  answer.absent = {{0, false, 6, true, monitor::pack_rank(here[0], here[0].ranks[0])},
                   {1, false, 5, false, monitor::pack_rank(there, there.ranks[0])},
                   {2, true},
                   {3, false, 6, true, "damaged"}};
  survey.answer = answer;
  survey.dead = {4};
  monitor::JobReading reading = monitor::reading_of(here, own, {{0xabc, survey}});
  CHECK((reading.unanswered == 0 && reading.processes.size() == 2 && reading.communicators.size() == 1));
  const auto& communicator = reading.communicators[0];
  REQUIRE((communicator.found.size() == 2 && communicator.found.at(1).process->pid == 201));
  CHECK(communicator.found.at(0).process->pid == own);
  CHECK((communicator.missing.at(2).silent && communicator.missing.at(2).host == "b"));
  CHECK((!communicator.missing.at(3).silent && !communicator.missing.at(3).dead &&
         communicator.missing.at(3).pid == 203));
  CHECK(communicator.missing.at(4).dead);
  CHECK(communicator.findings.stuck);
  const std::string text = monitor::ras_text(reading, false);
  CHECK(text.find("the process of rank 2 (pid 202 on b) does not answer") != std::string::npos);
  CHECK(text.find("rank 1 has not called operation 6") != std::string::npos);
  CHECK(text.find("look at rank 1 (train, pid 201 on b), rank 2 (pid 202 on b)") != std::string::npos);
  const auto missing = nlohmann::json::parse(monitor::ras_json(reading))["communicators"][0]["missing_ranks"];
  REQUIRE(missing.size() == 3);
  CHECK(missing[0]["status"] == nlohmann::json{{"unresponsive", true}, {"considered_dead", false}, {"stopped", false}});
  CHECK((missing[2]["rank"] == 4 && missing[2]["status"]["considered_dead"] == true));
  // Ranks that were asked, and have not answered.
  survey.answer.reset();
  reading = monitor::reading_of(here, own, {{0xabc, survey}});
  CHECK((reading.unanswered == 1 && reading.communicators[0].found.size() == 1));
  CHECK(nlohmann::json::parse(monitor::ras_json(reading))["ras"]["timeouts_count"] == 1);
}

TEST_CASE("monitor: events of processes and communicators") {
  std::vector<SeenProcess> processes{seen_process(0, 3, 5, false), seen_process(1, 3, 5, false)};
  const int own = processes[0].pid;
  processes[1].pid = ::getpid();  // one that lives
  monitor::RasWatch watch;
  const auto names = [&] {
    std::string text;
    for (const monitor::RasEvent& event : watch.compare(monitor::reading_of(processes, own))) {
      text += (text.empty() ? "" : " ") + event.name + (event.group == monitor::kTrace ? "(trace)" : "");
    }
    return text;
  };
  CHECK(names().empty());  // the first reading
  CHECK(names().empty());
  processes.push_back(seen_process(2, 3, 5, false));
  CHECK(names() == "PEER_NEW");
  processes[2].state = 'T';
  CHECK(names() == "PEER_UNRESPONSIVE(trace) COMM_STUCK(trace)");
  processes[2].state = 'S';
  CHECK(names() == "PEER_RECOVERED(trace) COMM_MOVES(trace)");
  processes[0].ranks.front().failure = SeenRank::Failure{"rank 2 has died", now_ns(), false};
  CHECK(names() == "COMM_FAILED");
  processes.erase(processes.begin() + 1, processes.end());
  CHECK(names() == "PEER_DISCONNECTED(trace) PEER_DEAD");
  const monitor::RasEvent event{monitor::kLifecycle, "PEER_DEAD", 77, "a", "rank 2: the process has ended"};
  CHECK(event.text("T") == "[T] PEER_DEAD: process 77 on a: rank 2: the process has ended\n");
  const auto json = nlohmann::json::parse(event.json("T"));
  CHECK((json["timestamp"] == "T" && json["group"] == "LIFECYCLE" && json["event"] == "PEER_DEAD"));
  CHECK((json["peer"]["host"] == "a" && json["peer"]["pid"] == 77 && json["peer"]["cuda_devs"].is_array()));
  CHECK(json["details"] == "rank 2: the process has ended");
}

}  // namespace
}  // namespace tutti::internal::test
