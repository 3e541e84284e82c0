// How --help prints the options of the programs: the value that each takes, in words that need no knowledge of CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tutti::internal::perf {

// Subcommands inherit it from the application.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  // Nothing for a hidden argument.
  std::string make_option_usage(const CLI::Option* option) const override;
};

}  // namespace tutti::internal::perf
