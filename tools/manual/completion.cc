#include "completion.h"

#include <fmt/core.h>

#include <map>
#include <string_view>
#include <vector>

namespace tutti::internal::tools {
namespace {

// The template of each script, with NAME for the program's name and for the cases of its options and subcommands.
constexpr std::string_view kScript = R"(# Completion of NAME in bash. Generated from the command line of the program.
_NAME() {
  local word last kept prefix value command='' option='' choices='' files='' list='' found='' i
  local -a words=()
  ((COMP_CWORD > 0)) || return 0
  # Bash takes ":" and "=" for words of their own.
  for ((i = 1; i <= COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if ((${#words[@]} > 0)) && [[ $word == [:=]* || ${words[-1]} == *[:=] ]]; then
      words[-1]+=$word
    else
      words+=("$word")
    fi
  done
  word=${words[-1]}
  unset 'words[-1]'
  # That part of the word stands on the line already, and is not replaced.
  last=${COMP_WORDS[COMP_CWORD]}
  [[ $last != [:=]* ]] || last=''
  kept=${word%"$last"}
SUBCOMMANDS  value=$word
  if [[ $word == --*=* ]]; then
    option=${word%%=*}
    value=${word#*=}
  elif ((${#words[@]} > 0)); then
    option=${words[-1]}
  fi
  case $command:$option in
VALUES    *)
      case $command:$word in
OPTIONS      esac
      ;;
  esac
  prefix=${word%"$value"}
  if [[ -n $list ]]; then
    prefix+=${value%"${value##*,}"}
    value=${value##*,}
  fi
  [[ -z $choices ]] || found=$(compgen -W "$choices" -- "$value") || :
  if [[ -n $files ]]; then
    # Readline quotes them then; other names would lose their colons to that.
    [[ -n $found ]] || compopt -o filenames 2>/dev/null || :
    found+=$'\n'$(compgen -f -- "$value") || :
  fi
  COMPREPLY=()
  while IFS= read -r word; do
    [[ -n $word ]] || continue
    word=$prefix$word
    COMPREPLY+=("${word#"$kept"}")
  done <<<"$found"
  return 0
}
complete -F _NAME NAME
)";

void replace(std::string& text, std::string_view what, std::string_view with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
}

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) text += fmt::format("{}{}", text.empty() ? "" : separator, word);
  return text;
}

// How the value of an argument is completed.
std::string completed(const std::vector<std::string>& choices, bool is_file, bool is_list) {
  std::string text;
  if (!choices.empty()) text += fmt::format(" choices='{}'", joined(choices, " "));
  if (is_file) text += " files=yes";
  if (is_list) text += " list=yes";
  return text.empty() ? ":" : text.substr(1);
}

std::string case_of(int indent, const std::string& patterns, const std::string& commands) {
  return fmt::format("{0:{1}}{2}) {3} ;;\n", "", indent, patterns, commands);
}

struct Cases {
  std::string subcommands;  // patterns
  std::string values;
  std::string options;
};

// `path`: of subcommands, each with "/" before it; empty for the program itself.
void add_cases(const Command& command, const std::string& path, Cases& cases) {
  std::vector<std::string> names;
  std::vector<std::string> subcommands;
  std::vector<std::string> choices;
  std::map<std::string, std::vector<std::string>> values;  // patterns, by what completes them
  bool is_file = false;
  for (const Argument& argument : command.arguments) {
    names.insert(names.end(), argument.names.begin(), argument.names.end());
    if (argument.names.empty()) {
      choices.insert(choices.end(), argument.choices.begin(), argument.choices.end());
      is_file = is_file || argument.is_file;
    } else if (!argument.value.empty()) {
      std::vector<std::string>& patterns = values[completed(argument.choices, argument.is_file, argument.is_list)];
      for (const std::string& name : argument.names) patterns.push_back(fmt::format("{}:{}", path, name));
    }
  }
  for (const auto& [how, patterns] : values) cases.values += case_of(4, joined(patterns, " | "), how);
  for (const Command& sub : command.commands) {
    const std::string name = sub.name.substr(sub.name.rfind(' ') + 1);
    choices.push_back(name);
    cases.subcommands += fmt::format("{}{}/{}", cases.subcommands.empty() ? "" : " | ", path, name);
    add_cases(sub, fmt::format("{}/{}", path, name), cases);
  }
  // Without anything else that the word could be, options are offered before it begins with "-".
  const bool is_option = choices.empty() && !is_file;
  if (!is_option)
    cases.options += case_of(8, fmt::format("{}:[!-]* | {}:", path, path), completed(choices, is_file, false));
  cases.options += case_of(8, fmt::format("{}:*", path), completed(names, false, false));
}

}  // namespace

std::string completion(const Command& program) {
  Cases cases;
  add_cases(program, "", cases);
  std::string subcommands;
  if (!cases.subcommands.empty()) {
    subcommands = fmt::format(
        "  for i in \"${{words[@]}}\"; do\n    case $command/$i in\n      {}) command+=/$i ;;\n    esac\n  done\n",
        cases.subcommands);
  }
  std::string script(kScript);
  replace(script, "SUBCOMMANDS", subcommands);
  replace(script, "VALUES", cases.values);
  replace(script, "OPTIONS", cases.options);
  replace(script, "NAME", program.name);
  return script;
}

}  // namespace tutti::internal::tools
