// The environment variables of tutti, its programs and its bindings: all that there are, with what is said of each.
//
// Threads: any; nothing here has state.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tutti::internal {

struct Variable {
  std::string_view name;
  std::string_view fallback;  // what holds where it is unset, as it would be written; in parentheses what is no value
  std::string_view meaning;   // one line
};

// In the order of the table of docs/settings.md.
std::span<const Variable> variables();

[[nodiscard]] bool is_variable(std::string_view name);

// Of a name that is none of tutti's: the one that was probably meant, by its letters or because it is called so
// elsewhere. Empty: none is similar.
std::string_view probably_meant(std::string_view name);

}  // namespace tutti::internal
