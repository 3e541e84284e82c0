// The tutti command. Unknown flags and unreadable values end with exit status 2.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "algorithms/loaded.h"
#include "application.h"
#include "base/config.h"
#include "base/standard_output.h"
#include "base/status.h"

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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return after_printing(app.exit(error) == 0 ? kExitOk : kExitUsage);
  }
  for (const auto& [command, run] : application.commands) {
    if (!command->parsed()) continue;
    // As a job's ranks do.
    const Status loaded = algorithms::load_schedules(environment_variable("TUTTI_SCHEDULES").value_or(""));
    if (loaded.is_ok()) return after_printing(run());
    std::fprintf(stderr, "tutti: TUTTI_SCHEDULES: %s\n", loaded.message().c_str());
    return kExitUsage;
  }
  std::fprintf(stderr, "A subcommand is required\n\n%s", app.help().c_str());
  return kExitUsage;
}

}  // namespace
}  // namespace tutti::internal::tools

int main(int argc, char** argv) {
  using namespace tutti::internal;
  int status = tools::kExitFailure;
  const Status ended = guarded([&] { return status = tools::run_command(argc, argv), Status(); });
  if (!ended.is_ok()) std::fprintf(stderr, "tutti: %s\n", ended.message().c_str());
  return status;
}
