// Traces of several processes on one time axis.
#include "tools/trace/merged_trace.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch_compat.h"
#include "executor/fingerprint.h"

namespace tutti::internal::test {
namespace {

using observe::TracedOperation;
using observe::TracedProcess;
using observe::TracedRank;
using observe::TraceRecord;
using tools::MergedTrace;
using Json = nlohmann::json;

constexpr std::int64_t kUs = 1000;
constexpr std::int64_t kSecond = 1'000'000 * kUs;

TracedOperation collective(Collective kind, std::uint32_t number, std::int64_t begun_ns, std::int64_t ended_ns) {
  TracedOperation operation;
  operation.number = number;
  operation.call = executor::call_word(kind, DataType::kFloat32, ReduceOp::kSum);
  operation.count = 100;
  operation.begun_ns = begun_ns;
  operation.ended_ns = ended_ns;
  return operation;
}

TracedOperation transfer(bool sends, int peer, std::int64_t begun_ns, std::int64_t ended_ns) {
  TracedOperation operation;
  operation.kind = sends ? TraceRecord::kSend : TraceRecord::kReceive;
  operation.root = static_cast<std::uint32_t>(peer);
  operation.count = 400;
  operation.begun_ns = begun_ns;
  operation.ended_ns = ended_ns;
  return operation;
}

// Its clock is `ahead_ns` ahead of the true time, and so is its real-time clock, except for `wrong_ns`.
TracedProcess process(int rank, int ranks, const std::string& host, std::int64_t ahead_ns, std::int64_t wrong_ns,
                      std::vector<TracedOperation> operations) {
  for (TracedOperation& operation : operations) {
    operation.begun_ns += ahead_ns;
    operation.ended_ns += ahead_ns;
  }
  TracedProcess one;
  one.pid = 100 + rank;
  one.host = one.machine = host;
  one.program = "train";
  one.realtime_offset_ns = 1000 * kSecond - ahead_ns + wrong_ns;
  one.ranks.push_back({0xabc, rank, ranks, std::move(operations), {}});
  return one;
}

class File {
 public:
  File() : path_(std::filesystem::temp_directory_path() / ("merged_trace_test." + std::to_string(::getpid()))) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { std::filesystem::remove(path_); }
  [[nodiscard]] std::string path() const { return path_; }
  [[nodiscard]] Json read() const {
    std::ifstream file(path_);
    return Json::parse(file);
  }

 private:
  std::filesystem::path path_;
};

std::vector<Json> of_kind(const Json& whole, const std::string& phase, const std::string& name = {}) {
  std::vector<Json> found;
  for (const Json& event : whole.at("traceEvents")) {
    if (event.at("ph") == phase && (name.empty() || event.at("name") == name)) found.push_back(event);
  }
  return found;
}

}  // namespace

TEST_CASE("merged trace: operations bound the difference of two clocks") {
  // Host b is 3 s ahead, and its real-time clock says 1 ms less. No rank ends a collective before all have begun it.
  std::vector<TracedOperation> of_a;
  std::vector<TracedOperation> of_b;
  for (std::uint32_t i = 1; i <= 100; ++i) {
    const std::int64_t at = i * 100 * kUs;
    // One of the two is last, by turns; both end 5 us after the last begin.
    of_a.push_back(collective(Collective::kAllReduce, i, at + (i % 2) * 20 * kUs, at + 25 * kUs));
    of_b.push_back(collective(Collective::kAllReduce, i, at + (1 - i % 2) * 20 * kUs, at + 25 * kUs));
  }
  const auto shifts = tools::align({process(0, 2, "a", 0, 0, of_a), process(1, 2, "b", 3 * kSecond, 1000 * kUs, of_b)});
  REQUIRE(shifts.size() == 2);
  CHECK(shifts.at("a").ns == 0);
  CHECK(shifts.at("a").uncertain_ns == 0);
  CHECK(shifts.at("b").ns == -3 * kSecond);
  CHECK(shifts.at("b").uncertain_ns == 5 * kUs);
}

TEST_CASE("merged trace: messages bound it, too, and without any the real-time clocks count") {
  const std::vector<TracedOperation> of_a{transfer(true, 1, 10 * kUs, 12 * kUs),
                                          transfer(false, 1, 30 * kUs, 50 * kUs)};
  const std::vector<TracedOperation> of_b{transfer(false, 0, 5 * kUs, 20 * kUs), transfer(true, 0, 40 * kUs, 41 * kUs)};
  auto shifts = tools::align({process(0, 2, "a", 0, 0, of_a), process(1, 2, "b", -kSecond, 77 * kUs, of_b)});
  CHECK(shifts.at("b").ns == kSecond);
  CHECK(shifts.at("b").uncertain_ns == 10 * kUs);
  // Through a third host.
  std::vector<TracedProcess> processes{process(0, 3, "a", 0, 0, {of_a}), process(1, 3, "b", -kSecond, 0, {of_b}),
                                       process(2, 3, "c", kSecond, 5 * kUs, {})};
  processes[1].ranks[0].operations.push_back(transfer(true, 2, 100 * kUs - kSecond, 101 * kUs - kSecond));
  processes[1].ranks[0].operations.push_back(transfer(false, 2, 100 * kUs - kSecond, 130 * kUs - kSecond));
  processes[2].ranks[0].operations = {transfer(true, 1, 120 * kUs + kSecond, 121 * kUs + kSecond),
                                      transfer(false, 1, 100 * kUs + kSecond, 110 * kUs + kSecond)};
  shifts = tools::align(processes);
  CHECK(shifts.at("c").ns == -kSecond);
  CHECK(shifts.at("c").uncertain_ns == 20 * kUs);
  // Clocks that do not run equally fast: two messages contradict each other by 30 us.
  shifts = tools::align(
      {process(0, 2, "a", 0, 0, {transfer(true, 1, 10 * kUs, 12 * kUs), transfer(true, 1, kSecond, kSecond)}),
       process(1, 2, "b", 0, 0, {transfer(false, 0, 5 * kUs, 20 * kUs)})});
  CHECK(shifts.at("b").uncertain_ns < 0);
  shifts = tools::align(
      {process(0, 2, "a", 0, 0, {transfer(true, 1, 0, 1), transfer(false, 1, 0, 60 * kUs)}),
       process(1, 2, "b", 0, 0, {transfer(false, 0, 0, 10 * kUs), transfer(true, 0, 100 * kUs, kSecond)})});
  CHECK(shifts.at("b").ns == -25 * kUs);
  CHECK(shifts.at("b").uncertain_ns == 15 * kUs);
  // A message of 0 bytes is not one.
  TracedOperation nothing = transfer(true, 1, kSecond, kSecond);
  nothing.count = 0;
  shifts = tools::align({process(0, 2, "a", 0, 0, {nothing}), process(1, 2, "b", 0, 0, {nothing})});
  CHECK(shifts.at("b").uncertain_ns < 0);
  // No operation connects them.
  shifts = tools::align({process(0, 2, "a", 0, 0, {}), process(1, 2, "b", kSecond, 5 * kUs, {})});
  CHECK(shifts.at("b").ns == -kSecond + 5 * kUs);
  CHECK(shifts.at("b").uncertain_ns < 0);
  CHECK(tools::align({}).empty());
}

TEST_CASE("merged trace: slices, rows, arrows and a table of the ranks") {
  // Rank 1 is late in the second operation by 2 ms, and rank 0 sends it a message.
  std::vector<TracedProcess> processes{process(0, 2, "a", 0, 0,
                                               {collective(Collective::kAllReduce, 1, 0, 50 * kUs),
                                                collective(Collective::kAllReduce, 2, 100 * kUs, 2150 * kUs),
                                                transfer(true, 1, 3000 * kUs, 3001 * kUs)}),
                                       process(1, 2, "a", 0, 0,
                                               {collective(Collective::kAllReduce, 1, 10 * kUs, 51 * kUs),
                                                collective(Collective::kAllReduce, 2, 2100 * kUs, 2151 * kUs),
                                                transfer(false, 0, 2900 * kUs, 3010 * kUs)})};
  processes[0].ranks[0].operations[0].plan = 7;
  processes[0].ranks[0].plans[7] = "by \"ring\"";
  processes[1].dropped = 3;
  const File file;
  auto merged = tools::write_merged(processes, file.path());
  REQUIRE(merged.is_ok());
  CHECK(merged->operations == 6);
  CHECK(merged->dropped == 3);
  CHECK(merged->span_ns == 3010 * kUs);
  REQUIRE(merged->ranks.size() == 2);
  CHECK(merged->ranks[0].collectives == 2);
  CHECK(merged->ranks[0].transfers == 1);
  CHECK(merged->ranks[0].last == 0);
  CHECK(merged->ranks[0].inside_ns == 2100 * kUs);
  CHECK(merged->ranks[0].waiting_ns == 2010 * kUs);
  CHECK(merged->ranks[1].last == 2);
  CHECK(merged->ranks[1].late_ns == 2010 * kUs);
  CHECK(merged->ranks[1].waiting_ns == 0);
  const Json whole = file.read();
  const std::vector<Json> slices = of_kind(whole, "X");
  REQUIRE(slices.size() == 6);
  CHECK(slices[0].at("name") == "all_reduce");
  CHECK(slices[0].at("ts") == 0.0);
  CHECK(slices[0].at("dur") == 50.0);
  CHECK(slices[0].at("args").at("call") == "operation 1, all_reduce(count 100, float, sum)");
  CHECK(slices[0].at("args").at("plan") == "by \"ring\"");
  CHECK(slices[1].at("args").at("last_rank") == 1);
  CHECK(slices[1].at("args").at("waiting_us") == 2000.0);
  CHECK(of_kind(whole, "M", "process_name").size() == 2);
  CHECK(of_kind(whole, "M", "thread_name").size() == 2);
  const std::vector<Json> sent = of_kind(whole, "s", "message");
  const std::vector<Json> received = of_kind(whole, "f", "message");
  REQUIRE(sent.size() == 1);
  REQUIRE(received.size() == 1);
  CHECK(sent[0].at("id") == received[0].at("id"));
  CHECK(sent[0].at("pid") == 0);
  CHECK(received[0].at("pid") == 1);
  CHECK(received[0].at("ts") == 3010.0);
  REQUIRE(of_kind(whole, "s", "late").size() == 1);
  CHECK(of_kind(whole, "s", "late")[0].at("pid") == 1);
  CHECK(of_kind(whole, "f", "late")[0].at("pid") == 0);
}

TEST_CASE("merged trace: a file that cannot be written") {
  CHECK(tools::write_merged({}, "/nonexistent/trace.json").status().code() == Code::kSystemError);
}

}  // namespace tutti::internal::test
