#include "base/config.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <string_view>

#include "base/log.h"
#include "base/variables.h"

namespace tutti::internal {
std::int64_t silence_limit_ms(const Settings& settings) {
  if (settings.network_timeout_ms > 0) return settings.network_timeout_ms;
  const bool waits_for_ever = settings.timeout_ms >= INT_MAX;
  return waits_for_ever ? settings.init_timeout_ms : std::max(settings.timeout_ms, settings.init_timeout_ms);
}

std::optional<std::string> environment_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<std::int64_t> parse_integer(const std::string& text, std::int64_t low, std::int64_t high) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < low || value > high) return std::nullopt;
  return value;
}

std::vector<UnknownVariable> unknown_names() {
  std::vector<UnknownVariable> result;
  for (char** at = ::environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (name.substr(0, kVariablePrefix.size()) != kVariablePrefix || find_variable(name) != nullptr) continue;
    result.push_back({std::string(name), std::string(probably_meant(name))});
  }
  return result;
}

std::vector<std::string> unknown_variables() {
  std::vector<std::string> result;
  for (const UnknownVariable& each : unknown_names()) {
    result.push_back(fmt::format("the environment sets {}, which tutti does not know and ignores{}", each.name,
                                 each.meant.empty() ? "" : fmt::format("; is {} meant?", each.meant)));
  }
  const auto level = environment_variable("TUTTI_LOG");
  if (level && !log::level_named(*level)) {
    result.push_back(fmt::format("TUTTI_LOG=\"{}\" is not error, warn, info or debug; warn is used", *level));
  }
  return result;
}

Status check_variable(std::string_view variable, const std::string& value) {
  if (variable == "TUTTI_LOG" && !log::level_named(value)) {
    return Status::invalid_usage(fmt::format("TUTTI_LOG=\"{}\" is not error, warn, info or debug", value));
  }
  const Variable* const found = find_variable(variable);
  if (found == nullptr || found->access.read == nullptr) return {};
  Settings unused;
  return found->access.read({std::string(variable), value}, &unused);
}

std::vector<std::string> given_variables() {
  std::vector<std::string> result;
  for (char** at = ::environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (name.substr(0, kVariablePrefix.size()) != kVariablePrefix || name.size() + 1 >= entry.size()) continue;
    result.emplace_back(name == "TUTTI_SECRET" ? "TUTTI_SECRET=(not shown)" : entry);
  }
  std::sort(result.begin(), result.end());
  return result;
}

Result<Settings> settings_from_environment() {
  // No call_once: a forked child would wait for a thread that does not exist in it.
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true)) {
    for (const std::string& line : unknown_variables()) log::warn(line);
  }
  Settings s;
  for (const Variable& variable : variables()) {
    if (variable.access.read == nullptr) continue;
    const std::string name(variable.name);
    const auto value = environment_variable(name.c_str());
    if (!value) continue;
    if (Status e = variable.access.read({name, *value}, &s); !e.is_ok()) return e;
  }
  return s;
}

Status apply_setting(std::string_view variable, const std::string& name, const std::string& value, Settings* settings) {
  const Variable* const found = find_variable(variable);
  if (found == nullptr || found->access.read == nullptr) {
    return Status::internal(fmt::format("no setting has the variable {}", variable));
  }
  if (!value.empty()) return found->access.read({name, value}, settings);
  found->access.copy(Settings(), settings);
  return {};
}

}  // namespace tutti::internal
