#include "command_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <regex>
#include <sstream>

#include "perf/harness/help_formatter.h"

namespace tutti::internal::tools {
namespace {

// Types of which the values cannot be listed.
const char* const kOpenTypes[] = {"SIZE", "INT", "UINT", "FLOAT", "TEXT", "RANK", "BOOLEAN"};
// A larger limit is one in name only.
constexpr double kLimit = 1e6;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

void end_sentence(std::string& text) {
  if (!text.empty() && text.back() != '.') text += '.';
}

void add_sentence(std::string& text, const std::string& sentence) {
  end_sentence(text);
  text += fmt::format("{}{}", text.empty() ? "" : " ", sentence);
}

// One of the alternatives of which a type consists: "ALGORITHM" of "ALGORITHM|FILE".
Status add_alternative(const std::string& type, const Choices& choices, Argument& argument) {
  const auto known = choices.find(type);
  if (known != choices.end()) {
    argument.choices.insert(argument.choices.end(), known->second.begin(), known->second.end());
  } else if (type == "FILE") {
    argument.is_file = true;
  } else if (!type.empty() && std::islower(static_cast<unsigned char>(type[0])) != 0) {
    argument.choices.push_back(type);
  } else if (std::find(std::begin(kOpenTypes), std::end(kOpenTypes), type) == std::end(kOpenTypes)) {
    return Status::invalid_argument(fmt::format("unknown type \"{}\"", type));
  }
  return {};
}

// Reads the parser's description of a value: its type, then its constraint, as in "INT:INT in [1 - 64]".
Status read_type(const CLI::Option& option, const Choices& choices, Argument& argument) {
  const std::vector<std::string> parts = split(option.get_type_name(), ':');
  argument.value = parts.empty() ? "" : parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string& part = parts[i];
    std::smatch found;
    if (part.front() == '{' && part.back() == '}') {
      argument.value = part.substr(1, part.size() - 2);
      std::replace(argument.value.begin(), argument.value.end(), ',', '|');
    } else if (part == "FILE" || part == "SIZE") {
      argument.value = part;
    } else if (std::regex_match(part, found, std::regex(R"(\w+ in \[(\S+) - (\S+)\])"))) {
      if (std::atof(found.str(2).c_str()) < kLimit) {
        add_sentence(argument.help, fmt::format("From {} to {}.", found.str(1), found.str(2)));
      } else if (found.str(1) != "0") {
        add_sentence(argument.help, fmt::format("At least {}.", found.str(1)));
      }
    } else if (part != "POSITIVE") {
      return Status::invalid_argument(fmt::format("unknown condition \"{}\"", part));
    }
  }
  for (const std::string& type : split(argument.value, '|')) {
    if (Status s = add_alternative(type, choices, argument); !s.is_ok()) return s;
  }
  return {};
}

Result<Argument> describe(const CLI::Option& option, const Choices& choices) {
  Argument argument;
  for (const std::string& name : option.get_snames()) argument.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) argument.names.push_back("--" + name);
  argument.help = option.get_description();
  argument.group = option.get_group();
  argument.variable = option.get_envname();
  argument.is_list = option.get_delimiter() == ',';
  argument.required = option.get_required();
  argument.repeated = option.get_items_expected_max() > 1 && !argument.is_list;
  if (option.get_items_expected_max() > 0) {
    if (Status s = read_type(option, choices, argument); !s.is_ok()) return s.with_context(option.get_name());
  }
  const std::string given = option.get_default_str();
  if (!given.empty()) add_sentence(argument.help, fmt::format("The default is {}.", given));
  end_sentence(argument.help);
  if (argument.names.empty()) argument.value = option.get_name(true);
  return argument;
}

// "Exit status: 0 success, 1 a failure" at the end; before it lines, of which those that are indented stand alone.
Status read_footer(const std::string& footer, Command& command) {
  const std::string kStatuses = "Exit status: ";
  const std::size_t begin = footer.find(kStatuses);
  if (begin == std::string::npos) return Status::invalid_argument("--help does not end with its exit statuses");
  std::istringstream lines(footer.substr(0, begin));
  bool joins = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) {
      joins = false;
      continue;
    }
    const bool alone = line.starts_with(' ');
    line.erase(0, line.find_first_not_of(' '));
    line.erase(line.find_last_not_of(' ') + 1);
    if (joins && !alone) {
      command.notes.back() += fmt::format(" {}", line);
    } else {
      command.notes.push_back(fmt::format("{}{}", alone ? " " : "", line));
    }
    joins = !alone;
  }
  std::string statuses = footer.substr(begin + kStatuses.size());
  std::replace(statuses.begin(), statuses.end(), '\n', ' ');
  const std::regex one(R"((\d+) (.*?)(?=, \d+ |[.;]|$))");
  for (auto i = std::sregex_iterator(statuses.begin(), statuses.end(), one); i != std::sregex_iterator(); ++i) {
    command.statuses[std::stoi(i->str(1))] = i->str(2);
  }
  return {};
}

}  // namespace

namespace {

// The usage of a command whose formatter has another one than HelpFormatter, without "Usage: " and the name; otherwise
// empty.
std::string own_usage(const CLI::App& app, const std::string& name) {
  const auto formatter = std::dynamic_pointer_cast<CLI::Formatter>(app.get_formatter());
  if (formatter == nullptr) return "";
  std::string usage = formatter->make_usage(&app, name);
  if (usage == perf::HelpFormatter().make_usage(&app, name)) return "";
  const std::size_t begin = usage.find(name);
  if (begin == std::string::npos) return "";
  usage.erase(0, begin + name.size() + 1);
  usage.erase(usage.find_last_not_of('\n') + 1);
  return usage;
}

}  // namespace

Result<Command> describe(const CLI::App& app, const std::string& name, const Choices& choices) {
  Command command;
  command.name = name;
  command.help = app.get_description();
  // A custom text for --help may begin with the name.
  if (command.help.starts_with(name + ": ")) command.help.erase(0, name.size() + 2);
  command.usage = own_usage(app, name);
  if (Status s = read_footer(app.get_footer(), command); !s.is_ok()) return s.with_context(name);
  for (const CLI::Option* const option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    auto argument = describe(*option, choices);
    if (!argument.is_ok()) return argument.status().with_context(name);
    command.arguments.push_back(std::move(*argument));
  }
  // The program itself is checked by its main function.
  command.commands_optional = app.get_parent() != nullptr && app.get_require_subcommand_min() == 0;
  for (const CLI::App* const sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    auto described = describe(*sub, fmt::format("{} {}", name, sub->get_name()), choices);
    if (!described.is_ok()) return described;
    command.commands.push_back(std::move(*described));
  }
  return command;
}

}  // namespace tutti::internal::tools
