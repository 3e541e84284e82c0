// The subcommands of `tutti`. Each adds its options to the command line and runs when it was chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace tutti::internal::tools {

// Exit statuses: the work was done; it was done and found a failure; the command line is wrong.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

// Runs the subcommand and returns the exit status.
using Run = std::function<int()>;

// Each adds one subcommand to the application and returns how to run it; *chosen is the subcommand.
Run add_verify(CLI::App& app, CLI::App** chosen);
Run add_schedule(CLI::App& app, CLI::App** chosen);
Run add_info(CLI::App& app, CLI::App** chosen);
Run add_topo(CLI::App& app, CLI::App** chosen);
Run add_doctor(CLI::App& app, CLI::App** chosen);
Run add_simulate(CLI::App& app, CLI::App** chosen);
Run add_diagnose(CLI::App& app, CLI::App** chosen);
Run add_status(CLI::App& app, CLI::App** chosen);
Run add_top(CLI::App& app, CLI::App** chosen);
Run add_report(CLI::App& app, CLI::App** chosen);
Run add_trace(CLI::App& app, CLI::App** chosen);
Run add_explain(CLI::App& app, CLI::App** chosen);
Run add_tune(CLI::App& app, CLI::App** chosen);

// The program that `tutti run` starts, and its arguments. tutti does not parse them, so `run` gets them separately.
using ProgramLine = std::vector<std::string>;
// `program`: read when the subcommand runs.
Run add_run(CLI::App& app, CLI::App** chosen, const ProgramLine* program);
// Takes the program's line from the arguments, which begin with "run": what follows the options of that, or "--".
ProgramLine take_program(const CLI::App& run, std::vector<std::string>* arguments);

}  // namespace tutti::internal::tools
