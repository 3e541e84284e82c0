// Manual pages in the language of man(7).
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "command_line.h"

namespace tutti::internal::tools {

struct Variable {
  std::string names;  // as "TUTTI_RANK, TUTTI_WORLD_SIZE"
  std::string preset;
  std::string meaning;
};

// The values that all pages share.
struct Manual {
  std::string version;
  std::vector<std::string> pages;   // the names of all
  std::vector<Variable> variables;  // of the environment
};

// The rows of the table of variables, from the text of docs/settings.md. kInvalidArgument: there is none.
Result<std::vector<Variable>> variables_of(const std::string& readme);

// The page of a program or of one of its subcommands is named as that, with "-" for blanks: "tutti-topo".
std::string page_name(const Command& command);
// That of the page that lists the variables.
inline constexpr const char* kVariablesPage = "tutti";

// The page's text. Subcommands of `program` have pages of their own; those of a subcommand are described with it.
std::string page(const Command& command, bool is_program, const Manual& manual);

}  // namespace tutti::internal::tools
