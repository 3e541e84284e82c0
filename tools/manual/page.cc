#include "page.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <sstream>

namespace tutti::internal::tools {
namespace {

// Text that stands for itself, also "-", which would else be a hyphen that cannot be searched for.
std::string plain(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '\\': escaped += "\\(rs"; break;
      case '-': escaped += "\\-"; break;
      case '\'': escaped += "\\(aq"; break;
      case '"': escaped += "\\(dq"; break;
      case '`': escaped += "\\(ga"; break;
      case '^': escaped += "\\(ha"; break;
      case '~': escaped += "\\(ti"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

// A line of text, escaped so that roff does not read it as a request. REQUIRES: plain().
std::string line(const std::string& text) {
  return fmt::format("{}{}\n", text.starts_with('.') ? "\\&" : "", text);
}

std::string bold(const std::string& text) {
  return fmt::format("\\fB{}\\fR", plain(text));
}

std::string italic(const std::string& text) {
  return fmt::format("\\fI{}\\fR", plain(text));
}

// The text between `open` and `close` from `at` on; moves `at` past it.
std::string between(const std::string& text, std::size_t& at, char open, char close) {
  const std::size_t begin = text.find(open, at) + 1;
  const std::size_t end = std::min(text.find(close, begin), text.size());
  at = end + 1;
  return text.substr(begin, end - begin);
}

// Markdown: `code` is bold, of a link its text remains.
std::string from_markdown(const std::string& text) {
  std::string written;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = std::min(text.find_first_of("`[", at), text.size());
    if (next > at) written += plain(text.substr(at, next - at));
    at = next;
    if (at == text.size()) break;
    if (text[at] == '`') {
      written += bold(between(text, at, '`', '`'));
    } else {
      written += plain(between(text, at, '[', ']'));
      if (at < text.size() && text[at] == '(') between(text, at, '(', ')');
    }
  }
  return written;
}

std::string heading(const std::string& name) {
  return fmt::format(".SH {}\n", name);
}

std::string item(const std::string& term, const std::string& text) {
  return ".TP\n" + line(term) + line(text);
}

std::string sentence_in_lower_case(std::string text) {
  if (text.ends_with('.')) text.pop_back();
  const auto is_upper = [&](std::size_t i) {
    return i < text.size() && std::isupper(static_cast<unsigned char>(text[i])) != 0;
  };
  if (is_upper(0) && !is_upper(1)) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

std::string sentence(std::string text) {
  if (text.empty()) return text;
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text.ends_with('.') ? text : text + ".";
}

std::string term_of(const Argument& argument) {
  if (argument.names.empty()) return italic(argument.value);
  std::string term;
  for (const std::string& name : argument.names) term += fmt::format("{}{}", term.empty() ? "" : ", ", bold(name));
  if (!argument.value.empty()) term += fmt::format(" {}", italic(argument.value));
  return term + (argument.repeated ? " ..." : "");
}

std::string options(const Command& command) {
  std::string text;
  std::vector<std::string> groups;
  for (const Argument& argument : command.arguments) {
    if (std::find(groups.begin(), groups.end(), argument.group) == groups.end()) groups.push_back(argument.group);
  }
  for (const std::string& group : groups) {
    // The first has those that the section is named for.
    if (group != groups.front()) text += fmt::format(".SS {}\n", plain(group));
    for (const bool named : {false, true}) {
      for (const Argument& argument : command.arguments) {
        if (argument.group == group && argument.names.empty() != named) {
          text += item(term_of(argument), plain(argument.help));
        }
      }
    }
  }
  return text;
}

std::string synopsis(const Command& command) {
  if (!command.usage.empty()) return fmt::format("{} {}\n", bold(command.name), plain(command.usage));
  std::string text = fmt::format("{} [{}]...", bold(command.name), italic("OPTION"));
  for (const Argument& argument : command.arguments) {
    if (!argument.names.empty()) continue;
    const std::string value = italic(argument.value);
    text +=
        fmt::format(" {}{}", argument.required ? value : fmt::format("[{}]", value), argument.repeated ? "..." : "");
  }
  if (!command.commands.empty()) {
    const std::string name = italic("COMMAND");
    text += command.commands_optional ? fmt::format(" [{}]", name) : fmt::format(" {}", name);
  }
  return text + "\n";
}

std::string description(const Command& command) {
  std::string text = line(plain(sentence(command.help)));
  for (const std::string& note : command.notes) {
    const bool alone = note.starts_with(' ');
    text += fmt::format("{}\n{}", alone ? ".IP \"\" 2" : ".PP", line(plain(note.substr(alone ? 1 : 0))));
  }
  return text;
}

std::string commands(const Command& command, bool is_program) {
  if (command.commands.empty()) return "";
  std::string text = heading("COMMANDS");
  for (const Command& sub : command.commands) {
    const std::string name = is_program ? page_name(sub) : sub.name;
    text += item(bold(name) + (is_program ? "(1)" : ""), plain(sentence(sub.help)));
    if (!is_program) text += ".RS\n" + options(sub) + ".RE\n";
  }
  return text;
}

std::string environment(const Command& command, const Manual& manual) {
  std::string text = heading("ENVIRONMENT");
  for (const Argument& argument : command.arguments) {
    if (argument.variable.empty()) continue;
    text += item(bold(argument.variable),
                 fmt::format("Stands for {} where that is not given.", bold(argument.names.back())));
  }
  if (page_name(command) != kVariablesPage) {
    return text + fmt::format(".PP\nThe variables of the library, whose names begin with {}, are listed in {}(1).\n",
                              bold("TUTTI_"), bold(kVariablesPage));
  }
  text += "Of the library, and of all programs that use it.\n";
  for (const Variable& variable : manual.variables) {
    std::string meaning = from_markdown(sentence(variable.meaning));
    if (!variable.preset.empty()) meaning += fmt::format(" Default: {}.", from_markdown(variable.preset));
    text += item(from_markdown(variable.names), meaning);
  }
  return text;
}

std::string see_also(const Command& command, const Manual& manual) {
  const std::string own = page_name(command);
  std::string text;
  for (const std::string& name : manual.pages) {
    if (name != own) text += fmt::format("{}{}(1)", text.empty() ? "" : ",\n", bold(name));
  }
  return heading("SEE ALSO") + text + "\n";
}

}  // namespace

Result<std::vector<Variable>> variables_of(const std::string& readme) {
  const std::string kRow = "| `TUTTI_";
  std::vector<Variable> variables;
  std::istringstream lines(readme);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kRow)) continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(1));
    for (std::string cell; std::getline(row, cell, '|');) {
      const std::size_t begin = std::min(cell.find_first_not_of(' '), cell.size());
      cells.push_back(cell.substr(begin, cell.find_last_not_of(' ') + 1 - begin));
    }
    if (cells.size() != 3)
      return Status::invalid_argument("a variable of the environment without three cells: " + line);
    variables.push_back({cells[0], cells[1], cells[2]});
  }
  if (variables.empty()) return Status::invalid_argument("no table of variables of the environment");
  return variables;
}

std::string page_name(const Command& command) {
  std::string name = command.name;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string page(const Command& command, bool is_program, const Manual& manual) {
  const std::string name = page_name(command);
  std::string title = name;
  for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  std::string text = ".\\\" Generated from the command line of the program.\n";
  text += fmt::format(".TH \"{}\" 1 \"\" \"tutti {}\" \"User Commands\"\n", plain(title), plain(manual.version));
  // Names and options in one piece, and no gaps in between.
  text += ".nh\n.ad l\n";
  text += heading("NAME") + fmt::format("{} \\- {}\n", plain(name), plain(sentence_in_lower_case(command.help)));
  text += heading("SYNOPSIS") + synopsis(command);
  text += heading("DESCRIPTION") + description(command);
  text += commands(command, is_program);
  text += heading("OPTIONS") + options(command);
  text += environment(command, manual);
  text += heading("EXIT STATUS");
  for (const auto& [status, meaning] : command.statuses)
    text += item(bold(std::to_string(status)), plain(sentence(meaning)));
  return text + see_also(command, manual);
}

}  // namespace tutti::internal::tools
