// Traces that processes write, and their reader.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "catch_compat.h"
#include "observe/recorded_file.h"
#include "observe/trace_file.h"
#include "observe/trace_reader.h"
#include "os/clock.h"
#include "os/ticks.h"

namespace tutti::internal::observe::test {
namespace {

constexpr std::uint32_t kTwoChunks = records_of(kFirstChunkBytes) + records_of(kChunkBytes);
constexpr std::uint32_t kMany = 3 * records_of(kChunkBytes) + 1;

class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "trace.XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::vector<TracedProcess> read() const {
    auto traced = read_traces(path_);
    REQUIRE(traced.is_ok());
    CHECK(traced->others.empty());
    return std::move(traced->processes);
  }

 private:
  std::string path_;
};

// Runs it in a child, in which the first communicator finds the setting. Kills the child afterwards.
template <class Body>
void in_process(const std::string& folder, Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("TUTTI_TRACE", folder.c_str(), 1);
    body();
    ::raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGKILL);
}

void add(Trace* trace, std::uint32_t number, std::uint64_t count) {
  const std::uint64_t begun = ticks();
  trace->add_collective({number, 3, 5, count, 9}, {begun, ticks()}, std::uint64_t{2} << 32 | 70);
}

}  // namespace

TEST_CASE("trace: without the setting there is none") {
  ::unsetenv("TUTTI_TRACE");
  CHECK(Trace::open(1, 0, 2) == nullptr);
}

TEST_CASE("trace: all operations of a killed process, over several chunks and communicators", "[fork]") {
  const Folder folder;
  const std::int64_t before_ns = now_ns();
  in_process(folder.path(), [] {
    const auto first = Trace::open(77, 1, 4);
    const auto second = Trace::open(78, 0, 2);
    first->name_plan(9, "by ring");
    first->name_plan(9, "by ring");
    for (std::uint32_t i = 1; i <= kMany; ++i) {
      add(first.get(), i, 100 + i);
      if (i % 2 == 0) second->add_transfer(i % 4 == 0, 1, i, {ticks(), ticks()});
    }
  });
  const std::vector<TracedProcess> processes = folder.read();
  REQUIRE(processes.size() == 1);
  CHECK_FALSE(processes[0].host.empty());
  CHECK(processes[0].dropped == 0);
  REQUIRE(processes[0].ranks.size() == 2);
  const TracedRank& first = processes[0].ranks[0];
  CHECK(first.communicator == 77);
  CHECK(first.rank == 1);
  CHECK(first.ranks == 4);
  CHECK(first.plans.at(9) == "by ring");
  REQUIRE(first.operations.size() == kMany);
  std::int64_t last_ns = before_ns;
  for (std::uint32_t i = 1; i <= first.operations.size(); ++i) {
    const TracedOperation& operation = first.operations[i - 1];
    REQUIRE(operation.kind == TraceRecord::kCollective);
    REQUIRE(operation.number == i);
    REQUIRE(operation.count == 100 + i);
    REQUIRE(operation.plan == 9);
    REQUIRE(operation.waited_ms == 70);
    REQUIRE(operation.waited_for == 1);
    REQUIRE(operation.begun_ns >= last_ns);
    REQUIRE(operation.ended_ns >= operation.begun_ns);
    last_ns = operation.ended_ns;
  }
  CHECK(last_ns <= now_ns());
  const TracedRank& second = processes[0].ranks[1];
  REQUIRE(second.operations.size() == kMany / 2);
  CHECK(second.operations[0].kind == TraceRecord::kReceive);
  CHECK(second.operations[1].kind == TraceRecord::kSend);
  CHECK(second.operations[1].count == 4);
}

TEST_CASE("trace: steps of an operation, and the description of the job", "[fork]") {
  const Folder folder;
  const std::string job(1000, 'j');
  constexpr std::uint64_t kLong = (std::uint64_t{1} << 33) + 5;
  in_process(folder.path(), [&] {
    const auto trace = Trace::open(77, 1, 4);
    StepLog log;
    CHECK_FALSE(log.begin({1, 9, kAllStepsBytes - 1, 4}));
    for (const std::uint32_t number : {2u, 2 * kStepsPeriod}) {
      add(trace.get(), number, 4);
      if (!log.begin({number, 9, number == 2 ? kAllStepsBytes : 8, 4, number == 2})) ::_exit(1);
      for (std::uint32_t i = 0; i < 5; ++i) log.add({i, i % 5, static_cast<int>(i) - 1, kLong + i, ticks(), ticks()});
      if (number == 2) {
        for (std::size_t i = 5; i < kMostSteps + 3; ++i) log.add({7, 0, 2, 1, ticks(), ticks()});
      }
      trace->add_steps(log);
    }
    trace->name_job(job);
  });
  const std::vector<TracedProcess> processes = folder.read();
  REQUIRE(processes.size() == 1);
  REQUIRE(processes[0].ranks.size() == 1);
  const TracedRank& rank = processes[0].ranks[0];
  CHECK(rank.operations.size() == 2);
  CHECK(rank.job == job);
  REQUIRE(rank.steps.size() == 2);
  CHECK(rank.steps[0].number == 2);
  CHECK(rank.steps[0].uneven);
  CHECK(rank.steps[0].left_out == 3);
  CHECK(rank.steps[0].steps.size() == kMostSteps);
  const TracedSteps& steps = rank.steps[1];
  CHECK(steps.number == 2 * kStepsPeriod);
  CHECK(steps.plan == 9);
  CHECK(steps.bytes == 8);
  CHECK(steps.element_bytes == 4);
  CHECK_FALSE(steps.uneven);
  REQUIRE(steps.steps.size() == 5);
  for (std::uint32_t i = 0; i < 5; ++i) {
    const TracedStep& step = steps.steps[i];
    CHECK(step.step == i);
    CHECK(step.kind == i % 5);
    CHECK(step.peer == static_cast<int>(i) - 1);
    CHECK(step.bytes == kLong + i);
    CHECK(step.begun_ns >= rank.operations[1].begun_ns);
    CHECK(step.ended_ns >= step.begun_ns);
  }
}

TEST_CASE("trace: a forked child writes its own", "[fork]") {
  const Folder folder;
  in_process(folder.path(), [] {
    auto trace = Trace::open(77, 0, 2);
    add(trace.get(), 1, 4);
    const pid_t child = ::fork();
    if (child == 0) {
      trace.reset();
      const auto own = Trace::open(79, 1, 2);
      add(own.get(), 1, 4);
      add(own.get(), 2, 4);
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    add(trace.get(), 2, 4);
  });
  const std::vector<TracedProcess> processes = folder.read();
  REQUIRE(processes.size() == 2);
  for (const TracedProcess& process : processes) {
    REQUIRE(process.ranks.size() == 1);
    CHECK(process.ranks[0].operations.size() == 2);
  }
  CHECK(processes[0].ranks[0].communicator != processes[1].ranks[0].communicator);
}

TEST_CASE("trace: it ends if there is no more room, and counts what is missing", "[fork]") {
  const Folder folder;
  in_process(folder.path(), [] {
    const rlimit two_chunks{kTraceHeaderBytes + kFirstChunkBytes + kChunkBytes, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &two_chunks);
    const auto trace = Trace::open(77, 0, 2);
    for (std::uint32_t i = 1; i <= kTwoChunks + 10; ++i) add(trace.get(), i, 4);
  });
  const std::vector<TracedProcess> processes = folder.read();
  REQUIRE(processes.size() == 1);
  CHECK(processes[0].dropped == 10);
  REQUIRE(processes[0].ranks.size() == 1);
  CHECK(processes[0].ranks[0].operations.size() == kTwoChunks);
}

TEST_CASE("trace: without a folder that can be used, the job runs on", "[fork]") {
  in_process("/nonexistent/folder", [] {
    if (Trace::open(77, 0, 2) != nullptr) ::_exit(1);
  });
  CHECK(read_traces("/nonexistent/folder").status().code() == Code::kInvalidArgument);
}

TEST_CASE("trace: damaged files", "[fork]") {
  const Folder folder;
  in_process(folder.path(), [] {
    const auto trace = Trace::open(77, 0, 2);
    for (std::uint32_t i = 1; i <= 10; ++i) add(trace.get(), i, 4);
    StepLog log;
    log.begin({10, 9, kAllStepsBytes, 4});
    for (std::uint32_t i = 0; i < 9; ++i) log.add({i, 0, 1, 64, ticks(), ticks()});
    trace->add_steps(log);
    trace->name_job("a job");
  });
  const std::string path = find_recorded(folder.path(), kTraceKind)->at(0);
  std::ifstream file(path, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  REQUIRE(whole.size() == kTraceHeaderBytes + kFirstChunkBytes);
  for (std::size_t length = 0; length < whole.size(); length += 997) {
    { std::ofstream(path, std::ios::binary) << whole.substr(0, length); }
    REQUIRE(read_traces(folder.path()).is_ok());
  }
  unsigned state = 1;
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 50; ++i) {
      state = state * 1664525 + 1013904223;
      damaged[8 + (state >> 8) % (damaged.size() - 8)] = static_cast<char>(state >> 4);
    }
    // Most of a chunk is empty; what counts is at its beginning.
    damaged[kTraceHeaderBytes + 8 + round % 1200] = static_cast<char>(state);
    { std::ofstream(path, std::ios::binary) << damaged; }
    REQUIRE(read_traces(folder.path()).is_ok());
  }
}

}  // namespace tutti::internal::observe::test
