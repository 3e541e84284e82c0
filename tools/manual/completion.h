// Completion of command lines in bash.
#pragma once

#include <string>

#include "command_line.h"

namespace tutti::internal::tools {

// A script that bash reads before it completes a program's arguments, or that a user reads with `source`: subcommands,
// options, those of their values that can be listed, and names of files. It needs no other script.
std::string completion(const Command& program);

}  // namespace tutti::internal::tools
