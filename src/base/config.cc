#include "base/config.h"

#include <charconv>
#include <cstdlib>

namespace tutti {
namespace {

constexpr std::int64_t kMaxMs = std::int64_t{1} << 40;

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

Result<Settings> settings_from_environment() {
  Settings s;
  if (auto v = environment_variable("TUTTI_TRANSPORTS")) s.transports = *v;
  if (auto v = environment_variable("TUTTI_INTERFACE")) s.interface = *v;
  if (auto v = environment_variable("TUTTI_ALGORITHM")) s.algorithm = *v;
  if (auto v = environment_variable("TUTTI_VERBS")) s.verbs = *v;
  if (Status e = read_port_range(&s); !e.is_ok()) return e;
  if (Status e = read_integer("TUTTI_TCP_STREAMS", 1, 16, "a number from 1 to 16", &s.tcp_streams); !e.is_ok())
    return e;
  if (Status e = read_integer("TUTTI_TIMEOUT_MS", 1, kMaxMs, "a number of milliseconds", &s.timeout_ms); !e.is_ok()) {
    return e;
  }
  if (Status e = read_integer("TUTTI_INIT_TIMEOUT_MS", 1, kMaxMs, "a number of milliseconds", &s.init_timeout_ms);
      !e.is_ok()) {
    return e;
  }
  return s;
}

}  // namespace tutti
