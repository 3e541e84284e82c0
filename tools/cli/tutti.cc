// The tutti command. Unknown flags and unreadable values end with exit status 2.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/loaded.h"
#include "application.h"
#include "base/config.h"
#include "base/standard_output.h"
#include "base/status.h"
#include "os/standard_streams.h"
#include "perf/harness/refusal.h"

namespace tutti::internal::tools {
namespace {

// The exit status, or failure if what was printed has not arrived.
int after_printing(int status) {
  const Status printed = flush_standard_output();
  if (printed.is_ok()) return status;
  std::fprintf(stderr, "tutti: %s\n", printed.message().c_str());
  return kExitFailure;
}

int run_command(int argc, char** argv) {
  Application application;
  CLI::App& app = application.app;
  app.failure_message(perf::refusal);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  // Under the name of NCCL's command.
  const std::string_view path(argc > 0 ? argv[0] : "");
  if (path.substr(path.rfind('/') + 1) == "ncclras") arguments.insert(arguments.begin(), "status");
  // "tutti help topo" is "tutti topo --help".
  if (!arguments.empty() && arguments[0] == "help") {
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  }
  if (!arguments.empty() && arguments[0] == application.run->get_name()) {
    application.program = take_program(*application.run, &arguments);
  }
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return after_printing(app.exit(error) == 0 ? kExitOk : kExitUsage);
  }
  for (const auto& [command, run] : application.commands) {
    if (!command->parsed()) continue;
    if (command == application.run) return run();
    // As a job's ranks do.
    const Status loaded = algorithms::load_schedules(environment_variable("TUTTI_SCHEDULES").value_or(""));
    if (loaded.is_ok()) return after_printing(run());
    std::fprintf(stderr, "tutti: TUTTI_SCHEDULES: %s\n", loaded.message().c_str());
    return kExitUsage;
  }
  std::fprintf(stderr, "tutti: a subcommand is required\n\n%s", app.help().c_str());
  return kExitUsage;
}

}  // namespace
}  // namespace tutti::internal::tools

int main(int argc, char** argv) {
  using namespace tutti::internal;
  open_missing_standard_streams();
  int status = tools::kExitFailure;
  const Status ended = guarded([&] { return status = tools::run_command(argc, argv), Status(); });
  if (!ended.is_ok()) std::fprintf(stderr, "tutti: %s\n", ended.message().c_str());
  return status;
}
