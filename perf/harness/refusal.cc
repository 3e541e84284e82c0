#include "refusal.h"

#include <fmt/core.h>

#include <deque>
#include <regex>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/similar.h"

namespace tutti::internal::perf {
namespace {

// "tutti doctor", and in *app the subcommand.
std::string command_of(const CLI::App** app) {
  std::string command = (*app)->get_name();
  for (auto chosen = (*app)->get_subcommands(); !chosen.empty(); chosen = (*app)->get_subcommands()) {
    *app = chosen.front();
    command += fmt::format(" {}", (*app)->get_name());
  }
  return command;
}

// "0.100000" as "0.1".
std::string without_zeros(std::string number) {
  if (number.find('.') == std::string::npos) return number;
  number.erase(number.find_last_not_of('0') + 1);
  if (number.ends_with('.')) number.pop_back();
  return number;
}

// Rewrites the texts of CLI11 that name a type, a range or the long name alone.
std::string rephrased(const CLI::App& command, const CLI::Error& error) {
  const std::string what = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && what.ends_with(" missing")) {
    return fmt::format("{} needs a value", what.substr(0, what.find(':')));
  }
  static const std::regex kRange(R"((.*): Value (.*) not in range (\S+) to (\S+))");
  if (std::smatch found; std::regex_match(what, found, kRange)) {
    return fmt::format("{}: '{}' is not a number from {} to {}", found.str(1), found.str(2),
                       without_zeros(found.str(3)), without_zeros(found.str(4)));
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    const std::string name = what.substr(0, what.find(' '));
    const CLI::Option* const option = name.starts_with("--") ? command.get_option_no_throw(name) : nullptr;
    if (option != nullptr && !option->get_snames().empty()) {
      return fmt::format("-{} is required ({})", option->get_snames().front(), option->get_description());
    }
  }
  return what;
}

// Says that the command does not have this word, and names the most similar one that it has.
std::string unknown(const CLI::App& command, const std::string& word) {
  std::deque<std::string> flags;
  std::vector<std::string_view> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;  // not in --help either
    for (const std::string& name : option->get_lnames()) names.push_back(flags.emplace_back("--" + name));
  }
  std::deque<std::string> subcommands;
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(subcommands.emplace_back(sub->get_name()));
  }
  const bool is_flag = word.starts_with("-");
  const char* const kind = is_flag ? "option" : subcommands.empty() ? "argument" : "subcommand";
  // One letter is like anything.
  const bool is_short = is_flag && word.size() < 4;
  return fmt::format("unknown {} {}{}", kind, word, is_short ? "" : meant_text(word.substr(0, word.find('=')), names));
}

}  // namespace

std::string refusal(const CLI::App* app, const CLI::Error& error) {
  const CLI::App* const whole = app;
  const std::string command = command_of(&app);
  std::string what = rephrased(*app, error);
  const std::vector<std::string> left = whole->remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !left.empty()) what = unknown(*app, left.front());
  return fmt::format("{0}: {1}\nRun {0} --help for more information.\n", command, what);
}

void refuse_option(CLI::App& app, const std::string& names, const std::string& remedy) {
  std::istringstream words(names);
  for (std::string name; std::getline(words, name, ',');) {
    app.add_option(name, [name, remedy](const CLI::results_t&) -> bool { throw CLI::ValidationError(name, remedy); })
        ->expected(0, 1)
        ->group("");
  }
}

}  // namespace tutti::internal::perf
