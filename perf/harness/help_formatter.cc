#include "help_formatter.h"

#include <fmt/core.h>

#include <cstdlib>
#include <regex>
#include <set>
#include <sstream>
#include <utility>

namespace tutti::internal::perf {
namespace {

// A larger limit is one in name only.
constexpr double kLimit = 1e6;

// CLI11 writes the type of an option and the limits of its values in one text. Help prints "INT:INT in [1 - 64]" as
// "INT from 1 to 64", "TEXT:{core,none}" as "core|none", and "UINT:SIZE" as "SIZE".
std::string readable(const std::string& type) {
  static const std::regex kRange(R"(\w+ in \[(\S+) - (\S+)\])");
  std::istringstream parts(type);
  std::string name;
  std::string limits;
  std::getline(parts, name, ':');
  for (std::string part; std::getline(parts, part, ':');) {
    std::smatch range;
    if (part.size() > 1 && part.front() == '{' && part.back() == '}') {
      name = std::regex_replace(part.substr(1, part.size() - 2), std::regex(","), "|");
    } else if (std::regex_match(part, range, kRange)) {
      const bool limited = std::atof(range.str(2).c_str()) < kLimit;
      if (limited || range.str(1) != "0") limits = fmt::format(" from {}", range.str(1));
      if (limited) limits += fmt::format(" to {}", range.str(2));
    } else if (part == "POSITIVE") {
      limits = " above 0";
    } else {
      name = part;
    }
  }
  return name + limits;
}

std::string names_of(const std::set<CLI::Option*>& options) {
  std::string names;
  for (const CLI::Option* const option : options) names += (names.empty() ? "" : ", ") + option->get_name();
  return names;
}

}  // namespace

std::string HelpFormatter::make_usage(const CLI::App* app, std::string name) const {
  std::string usage = Formatter::make_usage(app, std::move(name));
  usage.erase(usage.find_last_not_of(" \n") + 1);  // the space before a hidden argument
  return usage + "\n";
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  std::string text;
  std::string notes;
  const auto note = [&](const std::string& words) { notes += (notes.empty() ? "" : "; ") + words; };
  if (option->get_type_size() != 0) {
    const std::string type = readable(option->get_type_name());
    if (!type.empty()) text = " " + type;
    if (option->get_expected_max() == CLI::detail::expected_max_vector_size) text += " ...";
    if (option->get_required()) note("required");
    if (!option->get_default_str().empty()) note("default " + option->get_default_str());
  }
  if (!option->get_envname().empty()) note("or by " + option->get_envname());
  if (!option->get_excludes().empty()) note("not with " + names_of(option->get_excludes()));
  return notes.empty() ? text : fmt::format("{} ({})", text, notes);
}

std::string HelpFormatter::make_option_usage(const CLI::Option* option) const {
  return option->get_group().empty() ? "" : Formatter::make_option_usage(option);
}

}  // namespace tutti::internal::perf
