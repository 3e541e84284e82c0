// What the programs say of a command line that they refuse.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tutti::internal::perf {

// For failure_message() of the application: the program and its subcommand, what is wrong, and of an unknown word which
// one was probably meant.
std::string refusal(const CLI::App* app, const CLI::Error& error);

// Options that users of other programs know, and that there are not: refused with what to do instead. --help does not
// show them.
void refuse_option(CLI::App& app, const std::string& names, const std::string& remedy);

}  // namespace tutti::internal::perf
