// The options and arguments of a program, from its command line parser: the source of manual pages and completion.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace tutti::internal::tools {

struct Argument {
  std::vector<std::string> names;  // "-s", "--size"; empty: its place on the command line tells what it is
  std::string value;               // what stands for its value: "SIZE"; empty: it takes none
  std::string help;                // sentences, with the range and the default of the value
  std::string group;               // under which --help lists it
  std::string variable;            // of the environment, which stands for it
  std::vector<std::string> choices;
  bool is_file = false;   // also, or only, the name of a file
  bool is_list = false;   // several values with commas between them
  bool required = false;  // of those without names
  bool repeated = false;
};

struct Command {
  std::string name;  // as it is called: "tutti topo"
  std::string help;
  std::string usage;                    // what follows the name, where --help has a text of its own; else empty
  std::vector<std::string> notes;       // what --help says below the options; a line of its own begins with a blank
  std::map<int, std::string> statuses;  // the last of that, the exit statuses
  std::vector<Argument> arguments;
  std::vector<Command> commands;
  bool commands_optional = false;  // it does something without one
};

// The values that the name of a type stands for: {"COLLECTIVE", {"all_reduce", ...}}.
using Choices = std::map<std::string, std::vector<std::string>>;

// `name`: as the program is called. kInvalidArgument where an option has a type that neither `choices` nor the parser
// has, so that none goes without completion by mistake.
Result<Command> describe(const CLI::App& app, const std::string& name, const Choices& choices);

}  // namespace tutti::internal::tools
