// All environment variables of tutti, its programs and its bindings. Each has one row: its name and meaning, whose
// value applies, how its value is read and written, and the field of tuttiConfig_t that overrides it. These rows serve
// the environment (config.h), the C structure (api/configuration.cc), what rank 0 tells the other ranks, `tutti info`,
// `tutti doctor` and the log. Tests compare docs/settings.md and
// the Python module's Config with them.
//
// Threads: any; nothing here has state.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/config.h"
#include "base/status.h"
#include "tutti/config.h"

namespace tutti::internal {

inline constexpr std::string_view kVariablePrefix = "TUTTI_";  // of all that are tutti's

// Whose value applies.
enum class Decides : std::uint8_t { kEachRank, kRankZero };

// A value as text, and the name of the setting in errors.
struct SettingValue {
  const std::string& name;
  const std::string& text;
};

// How a value, as text, and the field of Settings become each other. `read` refuses what is not a value; it reads back
// what `write` has written of each value that it accepts.
struct Access {
  Status (*read)(const SettingValue& value, Settings* settings) = nullptr;
  std::string (*write)(const Settings& settings) = nullptr;
  void (*copy)(const Settings& from, Settings* to) = nullptr;
};
inline constexpr Access kNotASetting{};  // Settings has no such field

// The field of tuttiConfig_t that overrides a variable.
using ConfigField = std::variant<std::monostate, int tuttiConfig_t::*, const char * tuttiConfig_t::*>;
inline constexpr ConfigField kNoField{};

struct Variable {
  std::string_view name;
  std::string_view meaning;  // one line
  Decides decides;
  ConfigField field;
  Access access;
  std::string_view fallback{};  // see fallback_of(); empty: the default of Settings
};

// In the order of the table of docs/settings.md.
std::span<const Variable> variables();

// Null: no variable of tutti has that name.
[[nodiscard]] const Variable* find_variable(std::string_view name);

// What applies if it is unset, as text; in parentheses if it is not a value.
std::string fallback_of(const Variable& variable);

// What rank 0 decides for all ranks. A rank tells it as a text: NAME=value and a zero byte for each value that is not
// the default. The rank that hears it takes all of them, the defaults too; kRemoteError if the text is damaged. A rank
// also inherits them from other settings.
std::string tell_decided(const Settings& settings);
Status hear_decided(std::string_view told, Settings* settings);
void inherit_decided(const Settings& from, Settings* settings);

// The name of its field of tuttiConfig_t: "timeout_ms" of TUTTI_TIMEOUT_MS. REQUIRES: it has one.
std::string field_of(const Variable& variable);

// For an unknown name: the probably intended one, by its letters or because another library uses that name. Empty: none
// is similar.
std::string_view probably_meant(std::string_view name);

}  // namespace tutti::internal
