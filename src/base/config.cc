#include "base/config.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/log.h"

namespace tutti::internal {
namespace {

constexpr std::int64_t kMaxMs = std::int64_t{1} << 40;

// All that tutti, its programs and its scripts read.
constexpr std::string_view kPrefix = "TUTTI_";
constexpr std::array<std::string_view, 16> kNames = {
    "TUTTI_TRANSPORTS", "TUTTI_INTERFACE",  "TUTTI_PORT_RANGE",     "TUTTI_TCP_STREAMS",
    "TUTTI_VERBS",      "TUTTI_TIMEOUT_MS", "TUTTI_ALGORITHM",      "TUTTI_INIT_TIMEOUT_MS",
    "TUTTI_LOG",        "TUTTI_RANK",       "TUTTI_WORLD_SIZE",     "TUTTI_ROOT",
    "TUTTI_SECRET",     "TUTTI_AFFINITY",   "TUTTI_WAIT_NOTICE_MS", "TUTTI_CHECK"};
constexpr std::size_t kSimilar = 4;  // edits, at most, from a name to what was probably meant

// How many letters must be changed, added or taken away (Levenshtein's distance).
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

Status unreadable(const char* name, const std::string& value, const char* wanted) {
  return Status::invalid_usage(std::string(name) + "=\"" + value + "\" is not " + wanted);
}

template <class T>
Status read_integer(const char* name, std::int64_t low, std::int64_t high, const char* wanted, T* out) {
  const auto text = environment_variable(name);
  if (!text) return {};
  const auto value = parse_integer(*text, low, high);
  if (!value) return unreadable(name, *text, wanted);
  *out = static_cast<T>(*value);
  return {};
}

Status read_port_range(Settings* settings) {
  const auto text = environment_variable("TUTTI_PORT_RANGE");
  if (!text) return {};
  const auto dash = text->find('-');
  const auto low = parse_integer(text->substr(0, dash), 1, 65535);
  const auto high = dash == std::string::npos ? low : parse_integer(text->substr(dash + 1), 1, 65535);
  if (!low || !high || *low > *high) return unreadable("TUTTI_PORT_RANGE", *text, "low-high within 1-65535");
  settings->port_low = static_cast<int>(*low);
  settings->port_high = static_cast<int>(*high);
  return {};
}

}  // namespace

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

std::vector<std::string> unknown_variables() {
  std::vector<std::string> result;
  for (char** at = ::environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (name.substr(0, kPrefix.size()) != kPrefix || std::find(kNames.begin(), kNames.end(), name) != kNames.end()) {
      continue;
    }
    const auto nearest = std::min_element(kNames.begin(), kNames.end(), [&](std::string_view a, std::string_view b) {
      return edits(name, a) < edits(name, b);
    });
    const bool similar = edits(name, *nearest) <= kSimilar;
    result.push_back("the environment sets " + std::string(name) + ", which tutti does not know and ignores" +
                     (similar ? "; is " + std::string(*nearest) + " meant?" : ""));
  }
  return result;
}

Result<Settings> settings_from_environment() {
  // No call_once: a forked child would wait for the thread that has been at it.
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true)) {
    for (const std::string& line : unknown_variables()) log::warn(line);
  }
  Settings s;
  if (auto v = environment_variable("TUTTI_TRANSPORTS")) s.transports = *v;
  if (auto v = environment_variable("TUTTI_INTERFACE")) s.interface = *v;
  if (auto v = environment_variable("TUTTI_ALGORITHM")) s.algorithm = *v;
  if (auto v = environment_variable("TUTTI_VERBS")) s.verbs = *v;
  if (auto v = environment_variable("TUTTI_CHECK")) {
    if (*v != "strict") return unreadable("TUTTI_CHECK", *v, "\"strict\"");
    s.strict = true;
  }
  if (Status e = read_port_range(&s); !e.is_ok()) return e;
  if (auto v = environment_variable("TUTTI_AFFINITY")) {
    if (*v != "move" && *v != "keep") return unreadable("TUTTI_AFFINITY", *v, "move or keep");
    s.moves = *v == "move";
  }
  if (Status e = read_integer("TUTTI_TCP_STREAMS", 1, 16, "a number from 1 to 16", &s.tcp_streams); !e.is_ok())
    return e;
  if (Status e = read_integer("TUTTI_TIMEOUT_MS", 1, kMaxMs, "a number of milliseconds", &s.timeout_ms); !e.is_ok()) {
    return e;
  }
  if (Status e = read_integer("TUTTI_INIT_TIMEOUT_MS", 1, kMaxMs, "a number of milliseconds", &s.init_timeout_ms);
      !e.is_ok()) {
    return e;
  }
  if (Status e = read_integer("TUTTI_WAIT_NOTICE_MS", 0, kMaxMs, "a number of milliseconds", &s.wait_notice_ms);
      !e.is_ok()) {
    return e;
  }
  return s;
}

}  // namespace tutti::internal
