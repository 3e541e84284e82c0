// The tutti command as a whole: its subcommands, and how each is run.
#pragma once

#include <CLI/CLI.hpp>
#include <utility>
#include <vector>

#include "command.h"

namespace tutti::internal::tools {

struct Application {
  Application();

  CLI::App app;
  std::vector<std::pair<CLI::App*, Run>> commands;  // in the order of --help
  CLI::App* run = nullptr;                          // that of `tutti run`
  ProgramLine program;                              // that it starts: take_program(), before the rest is parsed
};

}  // namespace tutti::internal::tools
