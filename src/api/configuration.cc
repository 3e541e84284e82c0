#include "api/configuration.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "communicator/join.h"

namespace tutti::internal::api {
namespace {

constexpr unsigned kMagic = 0x74757474;
constexpr unsigned kFirstVersion = 100;  // 0.1.0: no caller was compiled with an earlier one
// Of the struct of the first version. None was smaller; none will be larger than the most.
constexpr std::size_t kLeastBytes = offsetof(tuttiConfig_t, cross_memory) + sizeof(const char*);
constexpr std::size_t kMostBytes = 4096;
// A field that a later version puts where this one has padding would hold whatever an older caller has there.
static_assert(offsetof(tuttiConfig_t, device) == kLeastBytes);
static_assert(sizeof(tuttiConfig_t) == offsetof(tuttiConfig_t, device) + sizeof(const char*));

std::string version_text(unsigned version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// Whether what the caller's struct has beyond this library's is unset.
bool tail_is_unset(const tuttiConfig_t* config) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(config);
  return config->size <= sizeof *config ||
         std::all_of(bytes + sizeof *config, bytes + config->size, [](std::byte b) { return b == std::byte{0}; });
}

Status check_form(const tuttiConfig_t* config) {
  // The size first: of a struct that is too short nothing else is there.
  if (config->size < kLeastBytes || config->size > kMostBytes || config->magic != kMagic ||
      config->version < kFirstVersion) {
    return Status::invalid_argument("config was not made from TUTTI_CONFIG_INITIALIZER");
  }
  const std::string versions = fmt::format("config was compiled with tutti {}, and the library that is loaded is {}",
                                           version_text(config->version), version_text(TUTTI_VERSION_CODE));
  if (config->version / 10000 > TUTTI_MAJOR) {
    return Status::invalid_argument(versions + ": load a library of the same major version");
  }
  if (!tail_is_unset(config)) {
    return Status::invalid_argument(versions +
                                    ", which does not know a field that config sets: leave it unset, or load a library "
                                    "at least as new");
  }
  return {};
}

struct Number {
  const char* variable;
  const char* name;
  int tuttiConfig_t::*field;
};
struct Text {
  const char* variable;
  const char* name;
  const char* tuttiConfig_t::*field;
  Status (*check)(const Settings& settings);  // of a text that Settings holds as it is; else null
};
constexpr Number kNumbers[] = {{"TUTTI_TIMEOUT_MS", "config.timeout_ms", &tuttiConfig_t::timeout_ms},
                               {"TUTTI_INIT_TIMEOUT_MS", "config.init_timeout_ms", &tuttiConfig_t::init_timeout_ms},
                               {"TUTTI_WAIT_NOTICE_MS", "config.wait_notice_ms", &tuttiConfig_t::wait_notice_ms},
                               {"TUTTI_TCP_STREAMS", "config.tcp_streams", &tuttiConfig_t::tcp_streams},
                               {"TUTTI_PROGRESS_THREADS", "config.progress_threads", &tuttiConfig_t::progress_threads}};
constexpr Text kTexts[] = {{"TUTTI_TRANSPORTS", "config.transports", &tuttiConfig_t::transports, check_transports},
                           {"TUTTI_INTERFACE", "config.interface", &tuttiConfig_t::interface, nullptr},
                           {"TUTTI_PORT_RANGE", "config.port_range", &tuttiConfig_t::port_range, nullptr},
                           {"TUTTI_ALGORITHM", "config.algorithm", &tuttiConfig_t::algorithm, check_algorithm},
                           {"TUTTI_AFFINITY", "config.affinity", &tuttiConfig_t::affinity, nullptr},
                           {"TUTTI_CHECK", "config.check", &tuttiConfig_t::check, nullptr},
                           {"TUTTI_VERBS", "config.verbs", &tuttiConfig_t::verbs, check_verbs},
                           {"TUTTI_CROSS_MEMORY", "config.cross_memory", &tuttiConfig_t::cross_memory, nullptr}};

Status apply(const tuttiConfig_t& c, Settings* settings) {
  for (const Number& n : kNumbers) {
    if (c.*n.field == TUTTI_CONFIG_UNDEF_INT) continue;
    if (Status s = apply_setting(n.variable, n.name, std::to_string(c.*n.field), settings); !s.is_ok()) return s;
  }
  for (const Text& t : kTexts) {
    if (c.*t.field == nullptr) continue;
    if (Status s = apply_setting(t.variable, t.name, c.*t.field, settings); !s.is_ok()) return s;
    if (t.check == nullptr) continue;
    if (Status s = t.check(*settings); !s.is_ok()) return s.with_context(t.name);
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
