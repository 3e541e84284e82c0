// tutti top: what the ranks of this host do, refreshed.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/standard_output.h"
#include "monitor/diagnosis.h"
#include "observe/reader.h"
#include "tools/cli/command.h"

namespace tutti::internal::tools {
namespace {

struct Options {
  double seconds = 2;
  int times = 0;  // 0: until interrupted
};

// How far a rank was.
struct Mark {
  std::uint32_t number = 0;
  std::int64_t at_ns = 0;
};
using Key = std::tuple<std::uint64_t, int, int>;  // communicator, rank, process

std::string rate_text(const Mark* before, const observe::SeenRank& rank, std::int64_t now_ns) {
  if (before == nullptr || now_ns <= before->at_ns) return "-";
  const double calls = rank.number - before->number;
  const double rate = calls * 1e9 / static_cast<double>(now_ns - before->at_ns);
  return rate >= 100'000 ? fmt::format("{:.0f}k", rate / 1000) : fmt::format("{:.{}f}", rate, rate < 10 ? 1 : 0);
}

// One table; *marks: of the one before.
void print(const std::vector<observe::SeenProcess>& processes, std::map<Key, Mark>* marks) {
  std::map<Key, Mark> next;
  std::map<Key, std::string> lines;
  for (const observe::SeenProcess& process : processes) {
    for (const observe::SeenRank& rank : process.ranks) {
      const Key key{rank.communicator, rank.rank, process.pid};
      const auto before = marks->find(key);
      lines[key] = fmt::format("{:016x} {:>5}/{:<5} {:>8} {:<15} {:>9}  {:<24}  {}", rank.communicator, rank.rank,
                               rank.ranks, process.pid, process.program,
                               rate_text(before == marks->end() ? nullptr : &before->second, rank, process.read_ns),
                               monitor::describe_state(process, rank), monitor::describe_last(rank));
      next[key] = {rank.number, process.read_ns};
    }
  }
  if (::isatty(STDOUT_FILENO) == 1) std::printf("\033[H\033[J");
  std::printf("%s\n", fmt::format("{:<16} {:>5}/{:<5} {:>8} {:<15} {:>9}  {:<24}  {}", "communicator", "rank", "of",
                                  "pid", "program", "calls/s", "state", "last call")
                          .c_str());
  for (const auto& [key, line] : lines) std::printf("%s\n", line.c_str());
  if (lines.empty()) std::printf("no process here has a communicator\n");
  *marks = std::move(next);
}

int run(const Options& options) {
  std::map<Key, Mark> marks;
  for (int time = 0; options.times == 0 || time < options.times; ++time) {
    if (time > 0) std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
    print(observe::read_all_processes().processes, &marks);
    if (!flush_standard_output().is_ok()) return kExitFailure;
  }
  return kExitOk;
}

}  // namespace

Run add_top(CLI::App& app, CLI::App** chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("top", "Show what the ranks on this host do, and refresh");
  command->add_option("-d,--delay", options->seconds, "Seconds between two tables")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_option("-n,--times", options->times, "Stop after this many tables; by default at Ctrl-C")
      ->check(CLI::Range(1, 1'000'000));
  command->footer(
      "One line for each rank: its collectives per second since the last table, what it is doing, and the\n"
      "collective that it called last. Reads the events that each rank writes into shared memory, as tutti diagnose "
      "does.\n"
      "Exit status: 0 success, 1 output cannot be written, 2 invalid arguments.");
  *chosen = command;
  return [options] { return run(*options); };
}

}  // namespace tutti::internal::tools
