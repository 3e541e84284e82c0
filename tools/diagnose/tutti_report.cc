// tutti report: the same as tutti diagnose, as a page for a browser.
#include <fmt/core.h>

#include <array>
#include <cstdio>
#include <ctime>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/rank_list.h"
#include "base/standard_output.h"
#include "monitor/diagnosis.h"
#include "place_options.h"
#include "places.h"
#include "report.h"
#include "tools/cli/command.h"
#include "tools/drawing/picture.h"

namespace tutti::internal::tools {
namespace {

struct Options : PlaceOptions {
  std::string output = "report.html";
};

std::string present_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  ::gmtime_r(&now, &parts);
  (void)std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

int run(const Options& options) {
  const Read read = read_places(options.places);
  for (const std::string& why : read.seen.others) std::fprintf(stderr, "tutti report: %s\n", why.c_str());
  if (read.seen.processes.empty()) {
    std::fprintf(stderr, "tutti report: no process has a communicator%s\n",
                 read.seen.unreadable > 0 ? "; those of other users were not read" : "");
    return kExitUsage;
  }
  const auto findings = monitor::diagnose(read.seen.processes, static_cast<std::int64_t>(options.after_s * 1000));
  std::set<std::string> hosts;
  for (const observe::SeenProcess& process : read.seen.processes) hosts.insert(process.host);
  const std::string heading =
      fmt::format("{}, {} process{} on {} host{}, {} communicator{}", present_time(), read.seen.processes.size(),
                  read.seen.processes.size() == 1 ? "" : "es", hosts.size(), hosts.size() == 1 ? "" : "s",
                  findings.size(), findings.size() == 1 ? "" : "s");
  const Status written = write_text(options.output, html_report(read.seen.processes, findings, heading));
  if (!written.is_ok()) {
    std::fprintf(stderr, "tutti report: %s\n", written.message().c_str());
    return kExitFailure;
  }
  if (options.output != "-") std::printf("written to %s\n", options.output.c_str());
  return flush_standard_output().is_ok() ? kExitOk : kExitFailure;
}

}  // namespace

Run add_report(CLI::App& app, CLI::App** chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("report", "Write what tutti diagnose finds as a page for a browser");
  options->add_to(command);
  command->add_option("-o,--output", options->output, "File to write; - is standard output")->capture_default_str();
  command->footer(
      "The page has the findings, what to do, who waits for whom, the last operations as a timeline, and a table of "
      "the\n"
      "ranks. It needs no other file and no network.\n"
      "Exit status: 0 success, 1 the file cannot be written, 2 invalid arguments or nothing that can be read.");
  *chosen = command;
  return [options] { return run(*options); };
}

}  // namespace tutti::internal::tools
