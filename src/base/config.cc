#include "base/config.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/variables.h"

namespace tutti::internal {
namespace {

constexpr std::int64_t kMaxMs = std::int64_t{1} << 40;

constexpr std::string_view kPrefix = "TUTTI_";  // of all that are tutti's

constexpr std::array<std::string_view, 5> kLauncherNames = {"plain", "pmix", "pmi1", "torchrun", "slurm"};

// One value, and what an error calls it.
struct Value {
  const std::string& name;
  const std::string& text;

  [[nodiscard]] Status unreadable(const std::string& wanted) const {
    std::string message(name);
    message.append("=\"").append(text).append("\" is not ").append(wanted);
    return Status::invalid_usage(std::move(message));
  }
};

Status read_launcher(const Value& value, Settings* s) {
  if (std::find(kLauncherNames.begin(), kLauncherNames.end(), value.text) == kLauncherNames.end()) {
    return value.unreadable("plain, pmix, pmi1, torchrun or slurm");
  }
  s->launcher = value.text;
  return {};
}

template <class T>
Status read_integer(const Value& value, std::int64_t low, std::int64_t high, const char* wanted, T* out) {
  const auto number = parse_integer(value.text, low, high);
  if (!number) return value.unreadable(wanted);
  *out = static_cast<T>(*number);
  return {};
}

// One of two words.
Status read_choice(const Value& value, std::string_view yes, std::string_view no, bool* out) {
  if (value.text != yes && value.text != no) return value.unreadable(std::string(yes).append(" or ").append(no));
  *out = value.text == yes;
  return {};
}

// One of several, by T's values.
template <class T, std::size_t kWords>
Status read_choice(const Value& value, const std::string_view (&words)[kWords], T* out) {
  const auto* const word = std::find(std::begin(words), std::end(words), value.text);
  if (word == std::end(words)) {
    std::string known(words[0]);
    for (std::size_t i = 1; i < kWords; ++i) known.append(i + 1 < kWords ? ", " : " or ").append(words[i]);
    return value.unreadable(known);
  }
  *out = static_cast<T>(word - words);
  return {};
}

Status read_port_range(const Value& value, Settings* s) {
  const auto dash = value.text.find('-');
  const auto low = parse_integer(value.text.substr(0, dash), 1, 65535);
  const auto high = dash == std::string::npos ? low : parse_integer(value.text.substr(dash + 1), 1, 65535);
  if (!low || !high || *low > *high) return value.unreadable("low-high within 1-65535");
  s->port_low = static_cast<int>(*low);
  s->port_high = static_cast<int>(*high);
  return {};
}

// The variable of a setting, how its value is read, and how it gets its default back.
struct SettingEntry {
  std::string_view variable;
  Status (*read)(const Value& value, Settings* s);
  void (*reset)(const Settings& defaults, Settings* s);
};

template <auto Field>
Status take_text(const Value& value, Settings* s) {
  s->*Field = value.text;
  return {};
}
template <auto Field>
void reset_field(const Settings& defaults, Settings* s) {
  s->*Field = defaults.*Field;
}
template <auto Field, std::int64_t kLow>
Status read_ms(const Value& value, Settings* s) {
  const char* const wanted = kLow == 0 ? "a number of milliseconds, 0 or more" : "a number of milliseconds, 1 or more";
  return read_integer(value, kLow, kMaxMs, wanted, &(s->*Field));
}

constexpr std::array<SettingEntry, 19> kSettings = {{
    {"TUTTI_TRANSPORTS", take_text<&Settings::transports>, reset_field<&Settings::transports>},
    {"TUTTI_INTERFACE", take_text<&Settings::interface>, reset_field<&Settings::interface>},
    {"TUTTI_ALGORITHM", take_text<&Settings::algorithm>, reset_field<&Settings::algorithm>},
    {"TUTTI_SCHEDULES", take_text<&Settings::schedules>, reset_field<&Settings::schedules>},
    {"TUTTI_TUNING", take_text<&Settings::tuning>, reset_field<&Settings::tuning>},
    {"TUTTI_TOPOLOGY", take_text<&Settings::topology>, reset_field<&Settings::topology>},
    {"TUTTI_VERBS", take_text<&Settings::verbs>, reset_field<&Settings::verbs>},
    {"TUTTI_CHECK", [](const Value& v, Settings* s) { return read_choice(v, "strict", "off", &s->strict); },
     reset_field<&Settings::strict>},
    {"TUTTI_PORT_RANGE", read_port_range,
     [](const Settings& defaults, Settings* s) {
       s->port_low = defaults.port_low;
       s->port_high = defaults.port_high;
     }},
    {"TUTTI_AFFINITY",
     [](const Value& v, Settings* s) {
       return read_choice(v, {"keep", "own", "start", "move"}, &s->moves);
     },
     reset_field<&Settings::moves>},
    {"TUTTI_CROSS_MEMORY",
     [](const Value& v, Settings* s) {
       return read_choice(v, {"never", "auto", "always"}, &s->cross_memory);
     },
     reset_field<&Settings::cross_memory>},
    {"TUTTI_BIND",
     [](const Value& v, Settings* s) {
       return read_choice(v, {"none", "core", "numa"}, &s->bind);
     },
     reset_field<&Settings::bind>},
    {"TUTTI_LAUNCHER", read_launcher, reset_field<&Settings::launcher>},
    {"TUTTI_TCP_STREAMS",
     [](const Value& v, Settings* s) { return read_integer(v, 1, 16, "a number from 1 to 16", &s->tcp_streams); },
     reset_field<&Settings::tcp_streams>},
    {"TUTTI_PROGRESS_THREADS",
     [](const Value& v, Settings* s) { return read_integer(v, 1, 64, "a number from 1 to 64", &s->progress_threads); },
     reset_field<&Settings::progress_threads>},
    {"TUTTI_TIMEOUT_MS", read_ms<&Settings::timeout_ms, 1>, reset_field<&Settings::timeout_ms>},
    {"TUTTI_INIT_TIMEOUT_MS", read_ms<&Settings::init_timeout_ms, 1>, reset_field<&Settings::init_timeout_ms>},
    {"TUTTI_NETWORK_TIMEOUT_MS", read_ms<&Settings::network_timeout_ms, 1>, reset_field<&Settings::network_timeout_ms>},
    {"TUTTI_WAIT_NOTICE_MS", read_ms<&Settings::wait_notice_ms, 0>, reset_field<&Settings::wait_notice_ms>},
}};

}  // namespace

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
    if (name.substr(0, kPrefix.size()) != kPrefix || is_variable(name)) continue;
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
  const auto* const entry =
      std::find_if(kSettings.begin(), kSettings.end(), [&](const SettingEntry& e) { return e.variable == variable; });
  if (entry == kSettings.end()) return {};
  Settings unused;
  return entry->read({std::string(variable), value}, &unused);
}

std::vector<std::string> given_variables() {
  std::vector<std::string> result;
  for (char** at = ::environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (name.substr(0, kPrefix.size()) != kPrefix || name.size() + 1 >= entry.size()) continue;
    result.emplace_back(name == "TUTTI_SECRET" ? "TUTTI_SECRET=(not shown)" : entry);
  }
  std::sort(result.begin(), result.end());
  return result;
}

Result<Settings> settings_from_environment() {
  // No call_once: a forked child would wait for the thread that has been at it.
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true)) {
    for (const std::string& line : unknown_variables()) log::warn(line);
  }
  Settings s;
  for (const SettingEntry& entry : kSettings) {
    const std::string name(entry.variable);
    const auto value = environment_variable(name.c_str());
    if (!value) continue;
    if (Status e = entry.read({name, *value}, &s); !e.is_ok()) return e;
  }
  return s;
}

Status apply_setting(std::string_view variable, const std::string& name, const std::string& value, Settings* settings) {
  for (const SettingEntry& entry : kSettings) {
    if (entry.variable != variable) continue;
    if (!value.empty()) return entry.read({name, value}, settings);
    entry.reset(Settings(), settings);
    return {};
  }
  return Status::internal(fmt::format("no setting has the variable {}", variable));
}

}  // namespace tutti::internal
