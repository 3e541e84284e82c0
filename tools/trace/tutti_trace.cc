// tutti trace: what the ranks of a job have done, on one time axis.
#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/standard_output.h"
#include "merged_trace.h"
#include "tools/cli/command.h"
#include "tools/trace/members.h"

namespace tutti::internal::tools {
namespace {

struct Options {
  std::string action;
  std::vector<std::string> folders;
  std::string output = "trace.json";
};

void print_hosts(const MergedTrace& merged) {
  for (const auto& [machine, shift] : merged.hosts) {
    if (machine == merged.hosts.begin()->first) continue;
    const double ms = static_cast<double>(shift.ns) / 1e6;
    if (shift.uncertain_ns < 0) {
      std::printf("%s\n",
                  fmt::format("clock of {}: moved by {:.3f} ms, as its real-time clock says", shift.host, ms).c_str());
    } else {
      std::printf("%s\n", fmt::format("clock of {}: moved by {:.3f} ms, to within {:.1f} us", shift.host, ms,
                                      static_cast<double>(shift.uncertain_ns) / 1e3)
                              .c_str());
    }
  }
}

void print_ranks(const MergedTrace& merged) {
  std::printf("%s\n", fmt::format("{:<16} {:>5}/{:<5} {:>11} {:>9} {:>7} {:>10} {:>12} {:>12}", "communicator", "rank",
                                  "of", "collectives", "transfers", "last", "late by us", "inside ms", "waiting ms")
                          .c_str());
  for (const RankSummary& rank : merged.ranks) {
    const double late_us =
        rank.last == 0 ? 0 : static_cast<double>(rank.late_ns) / 1e3 / static_cast<double>(rank.last);
    std::printf("%s\n",
                fmt::format("{:016x} {:>5}/{:<5} {:>11} {:>9} {:>7} {:>10.1f} {:>12.3f} {:>12.3f}", rank.communicator,
                            rank.rank, rank.ranks, rank.collectives, rank.transfers, rank.last, late_us,
                            static_cast<double>(rank.inside_ns) / 1e6, static_cast<double>(rank.waiting_ns) / 1e6)
                    .c_str());
  }
}

int run(const Options& options) {
  auto traced = read_all_traces(options.folders);
  if (!traced.is_ok()) {
    std::fprintf(stderr, "tutti trace: %s\n", traced.status().message().c_str());
    return kExitUsage;
  }
  for (const std::string& why : traced->others) std::fprintf(stderr, "tutti trace: %s\n", why.c_str());
  auto merged = write_merged(traced->processes, options.output);
  if (!merged.is_ok()) {
    std::fprintf(stderr, "tutti trace: %s\n", merged.status().message().c_str());
    return kExitFailure;
  }
  std::printf("%s\n", fmt::format("{} operations of {} processes in {:.3f} s, written to {}", merged->operations,
                                  traced->processes.size(), static_cast<double>(merged->span_ns) / 1e9, options.output)
                          .c_str());
  if (merged->dropped > 0) std::printf("%s\n", fmt::format("{} operations had no room", merged->dropped).c_str());
  if (!merged->unpredicted.empty()) {
    std::printf("%s\n", fmt::format("some steps have no prediction: {}", merged->unpredicted).c_str());
  }
  print_hosts(*merged);
  print_ranks(*merged);
  return flush_standard_output().is_ok() ? kExitOk : kExitFailure;
}

}  // namespace

Run add_trace(CLI::App& app, CLI::App** chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("trace", "Put the traces of all ranks of a job on one time axis");
  command->add_option("ACTION", options->action, "merge: write one file, and a table of the ranks")
      ->required()
      ->check(CLI::IsMember({"merge"}));
  command->add_option("DIR", options->folders, "Folders of TUTTI_TRACE, of all hosts of the job")->required();
  command->add_option("-o,--output", options->output, "File to write")->capture_default_str();
  command->footer(
      "The file has the trace event format: ui.perfetto.dev and chrome://tracing open it. In the table, `last` counts "
      "the\n"
      "collectives that the rank began after all others, and `waiting` is the time inside before the last rank had "
      "begun.\n"
      "Exit status: 0 success, 1 the file cannot be written, 2 invalid arguments or no trace.");
  *chosen = command;
  return [options] { return run(*options); };
}

}  // namespace tutti::internal::tools
