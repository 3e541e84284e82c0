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

// Whose value holds.
enum class Decides : std::uint8_t { kEachRank, kRankZero };

// A value as it is written, and what an error calls the setting.
struct SettingValue {
  const std::string& name;
  const std::string& text;
};

struct Variable {
  std::string_view name;
  std::string_view fallback;  // what holds where it is unset, as it would be written; in parentheses what is no value
  std::string_view meaning;   // one line
  Decides decides = Decides::kEachRank;
  // Of tuttiConfig_t; neither: no field overrides the variable.
  std::variant<std::monostate, int tuttiConfig_t::*, const char * tuttiConfig_t::*> field{};
  // read() sets the field of Settings, reset() gives it its default back. Null: Settings has no such field.
  Status (*read)(const SettingValue& value, Settings* settings) = nullptr;
  void (*reset)(const Settings& defaults, Settings* settings) = nullptr;
};

// In the order of the table of docs/settings.md.
std::span<const Variable> variables();

// Null: none of tutti's has that name.
[[nodiscard]] const Variable* find_variable(std::string_view name);

// The name of its field of tuttiConfig_t: "timeout_ms" of TUTTI_TIMEOUT_MS. REQUIRES: it has one.
std::string field_of(const Variable& variable);

// Of a name that is none of tutti's: the one that was probably meant, by its letters or because it is called so
// elsewhere. Empty: none is similar.
std::string_view probably_meant(std::string_view name);

}  // namespace tutti::internal
