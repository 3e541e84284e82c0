// All environment variables of tutti, its programs and its bindings. Each has one row: its name, default and meaning,
// how its value is read, and the field of tuttiConfig_t that overrides it. These rows serve the environment (config.h),
// the C structure (api/configuration.cc), `tutti info`, `tutti doctor` and the log. Tests compare docs/settings.md and
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

struct Variable {
  std::string_view name;
  std::string_view fallback;  // the value if it is unset, as text; in parentheses if it is not a value
  std::string_view meaning;   // one line
  Decides decides = Decides::kEachRank;
  // The field of tuttiConfig_t; monostate: no field overrides the variable.
  std::variant<std::monostate, int tuttiConfig_t::*, const char * tuttiConfig_t::*> field{};
  // read() sets the field of Settings, reset() restores its default. Null: Settings has no such field.
  Status (*read)(const SettingValue& value, Settings* settings) = nullptr;
  void (*reset)(const Settings& defaults, Settings* settings) = nullptr;
};

// In the order of the table of docs/settings.md.
std::span<const Variable> variables();

// Null: no variable of tutti has that name.
[[nodiscard]] const Variable* find_variable(std::string_view name);

// The name of its field of tuttiConfig_t: "timeout_ms" of TUTTI_TIMEOUT_MS. REQUIRES: it has one.
std::string field_of(const Variable& variable);

// For an unknown name: the probably intended one, by its letters or because another library uses that name. Empty: none
// is similar.
std::string_view probably_meant(std::string_view name);

}  // namespace tutti::internal
