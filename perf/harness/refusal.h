// The error texts for a refused command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tutti::internal::perf {

// For failure_message() of the application: the program and its subcommand, what is wrong, and for an unknown word the
// most similar known one.
std::string refusal(const CLI::App* app, const CLI::Error& error);

// Options that users know from other programs and that this one lacks: the refusal says what to do instead. --help does
// not show them.
void refuse_option(CLI::App& app, const std::string& names, const std::string& remedy);

}  // namespace tutti::internal::perf
