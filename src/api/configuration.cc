#include "api/configuration.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/variables.h"
#include "communicator/join.h"

namespace tutti::internal::api {
namespace {

constexpr unsigned kMagic = 0x74757474;
constexpr unsigned kFirstVersion = 100;  // 0.1.0: no caller was compiled with an earlier one
// The size of the struct in the first version, the smallest; and a limit that no version will exceed.
constexpr std::size_t kLeastBytes = offsetof(tuttiConfig_t, cross_memory) + sizeof(const char*);
constexpr std::size_t kMostBytes = 4096;
// If this version had padding here, a field of a later version at this position would contain garbage from older
// callers.
static_assert(offsetof(tuttiConfig_t, device) == kLeastBytes);
static_assert(sizeof(tuttiConfig_t) == offsetof(tuttiConfig_t, encrypt) + sizeof(const char*),
              "behind the last field, which stands here, there is no padding");

std::string version_text(unsigned version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// Whether the fields of the caller's struct beyond this library's are unset.
bool tail_is_unset(const tuttiConfig_t* config) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(config);
  return config->size <= sizeof *config ||
         std::all_of(bytes + sizeof *config, bytes + config->size, [](std::byte b) { return b == std::byte{0}; });
}

Status check_form(const tuttiConfig_t* config) {
  // Checks the size first: a too short struct may not have the other fields.
  if (config->size < kLeastBytes || config->size > kMostBytes || config->magic != kMagic ||
      config->version < kFirstVersion) {
    return Status::invalid_argument("config is not initialised. Start it from TUTTI_CONFIG_INITIALIZER");
  }
  const std::string versions = fmt::format("config was compiled with tutti {}, but the loaded library is {}",
                                           version_text(config->version), version_text(TUTTI_VERSION_CODE));
  if (config->version / 10000 > TUTTI_MAJOR) {
    return Status::invalid_argument(versions + ". Load a library of the same major version");
  }
  if (!tail_is_unset(config)) {
    return Status::invalid_argument(versions +
                                    ", which does not know a field that config sets. Leave the field unset, or load a "
                                    "library that is at least as new");
  }
  return {};
}

// The checks of texts that Settings stores unparsed.
struct Check {
  std::string_view variable;
  Status (*check)(const Settings& settings, std::string_view name);
};
constexpr Check kChecks[] = {
    {"TUTTI_TRANSPORTS", check_transports}, {"TUTTI_ALGORITHM", check_algorithm}, {"TUTTI_VERBS", check_verbs}};

Status check_text(std::string_view variable, const Settings& settings, std::string_view name) {
  for (const Check& one : kChecks) {
    if (one.variable == variable) return one.check(settings, name);
  }
  return {};
}

// Empty: the caller has left it unset.
std::optional<std::string> value_in(const tuttiConfig_t& c, const Variable& variable) {
  if (const auto* const number = std::get_if<int tuttiConfig_t::*>(&variable.field)) {
    return c.**number == TUTTI_CONFIG_UNDEF_INT ? std::nullopt : std::optional(std::to_string(c.**number));
  }
  const auto* const text = std::get_if<const char * tuttiConfig_t::*>(&variable.field);
  return text == nullptr || c.**text == nullptr ? std::nullopt : std::optional<std::string>(c.**text);
}

Status apply(const tuttiConfig_t& c, Settings* settings) {
  for (const Variable& variable : variables()) {
    const auto value = value_in(c, variable);
    if (!value) continue;
    const std::string name = "config." + field_of(variable);
    if (Status s = apply_setting(variable.name, name, *value, settings); !s.is_ok()) return s;
    if (Status s = check_text(variable.name, *settings, name); !s.is_ok()) return s;
  }
  if (c.device == nullptr) return {};
  settings->device = c.device;
  return check_device(*settings).with_context("config.device");
}

}  // namespace

Result<Settings> settings_from(const tuttiConfig_t* config) {
  auto settings = checked_settings();
  if (!settings.is_ok() || config == nullptr) return settings;
  return changed_settings(std::move(*settings), config);
}

Result<Settings> changed_settings(Settings settings, const tuttiConfig_t* config) {
  if (Status s = check_form(config); !s.is_ok()) return s;
  tuttiConfig_t known = TUTTI_CONFIG_INITIALIZER;
  std::memcpy(&known, config, std::min(config->size, sizeof known));
  if (Status s = apply(known, &settings); !s.is_ok()) return s.with_code(Code::kInvalidArgument);
  return settings;
}

}  // namespace tutti::internal::api
