// The environment variables, the settings that are read from them, and what rank 0 tells of them.
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/config.h"
#include "base/variables.h"
#include "catch_compat.h"

namespace tutti::internal::test {
namespace {

// Sets the setting of `variable` to a value that is not its default. Returns the value.
std::string set_another_value(const Variable& variable, Settings* settings) {
  for (const char* const value : {"4000-4010", "7", "1", "strict", "on", "never", "core", "move", "slurm", "tcp"}) {
    Settings changed = *settings;
    if (!apply_setting(variable.name, std::string(variable.name), value, &changed).is_ok()) continue;
    if (variable.access.write(changed) == variable.access.write(Settings())) continue;
    *settings = changed;
    return value;
  }
  FAIL("no value is known for " << variable.name);
  return {};
}

}  // namespace

TEST_CASE("integers are read whole or not at all") {
  REQUIRE(parse_integer("12", 0, 20) == 12);
  REQUIRE(parse_integer("-3", -5, 20) == -3);
  for (const char* bad : {"", " 1", "1 ", "0x1", "21", "-1", "99999999999999999999", "1.5"}) {
    INFO(bad);
    REQUIRE_FALSE(parse_integer(bad, 0, 20).has_value());
  }
}

TEST_CASE("settings come from the environment and unreadable ones are refused") {
  ::setenv("TUTTI_PORT_RANGE", "4000-4010", 1);
  ::setenv("TUTTI_TIMEOUT_MS", "77", 1);
  auto settings = settings_from_environment();
  REQUIRE(settings.is_ok());
  REQUIRE(settings->port_low == 4000);
  REQUIRE(settings->port_high == 4010);
  REQUIRE(settings->timeout_ms == 77);
  for (const char* bad : {"0-5", "9-8", "1-65536", "-", "a-b", "1-2-3"}) {
    ::setenv("TUTTI_PORT_RANGE", bad, 1);
    INFO(bad);
    const auto refused = settings_from_environment();
    REQUIRE_FALSE(refused.is_ok());
    REQUIRE(refused.status().code() == Code::kInvalidUsage);
    REQUIRE(refused.status().message().find("TUTTI_PORT_RANGE") != std::string::npos);
  }
  ::unsetenv("TUTTI_PORT_RANGE");
  ::unsetenv("TUTTI_TIMEOUT_MS");
}

TEST_CASE("unknown variables of tutti are named, with a suggestion") {
  ::setenv("TUTTI_LOG", "warn", 1);
  REQUIRE(unknown_variables().empty());
  ::setenv("TUTTI_TRANSPORT", "tcp", 1);
  auto unknown = unknown_variables();
  REQUIRE(unknown.size() == 1);
  CHECK(unknown[0].find("TUTTI_TRANSPORT,") != std::string::npos);
  CHECK(unknown[0].find("is TUTTI_TRANSPORTS meant?") != std::string::npos);
  ::unsetenv("TUTTI_TRANSPORT");
  ::setenv("TUTTI_TIMEOUT", "5", 1);
  unknown = unknown_variables();
  REQUIRE(unknown.size() == 1);
  CHECK(unknown[0].find("is TUTTI_TIMEOUT_MS meant?") != std::string::npos);
  ::unsetenv("TUTTI_TIMEOUT");
  ::setenv("TUTTI_SOMETHING_ELSE_ALTOGETHER", "5", 1);
  unknown = unknown_variables();
  REQUIRE(unknown.size() == 1);
  CHECK(unknown[0].find("meant") == std::string::npos);
  ::unsetenv("TUTTI_SOMETHING_ELSE_ALTOGETHER");
  ::unsetenv("TUTTI_LOG");
}

TEST_CASE("other libraries' names of tutti's settings are recognised") {
  CHECK(probably_meant("TUTTI_SOCKET_IFNAME") == "TUTTI_INTERFACE");
  CHECK(probably_meant("TUTTI_SIZE") == "TUTTI_WORLD_SIZE");
  CHECK(probably_meant("TUTTI_RNAK") == "TUTTI_RANK");
  CHECK(probably_meant("TUTTI_SOMETHING_ELSE_ALTOGETHER").empty());
  CHECK(probably_meant("TUTTI_FOO").empty());
  for (const Variable& variable : variables()) {
    CHECK(find_variable(variable.name) == &variable);
    CHECK(probably_meant(variable.name) == variable.name);
    CHECK_FALSE(variable.meaning.empty());
  }
  CHECK(find_variable("TUTTI_SOCKET_IFNAME") == nullptr);
}

TEST_CASE("a host counts as gone after a finite time, also if operations wait without limit") {
  Settings settings;
  settings.timeout_ms = 7'000'000;
  settings.init_timeout_ms = 60'000;
  CHECK(silence_limit_ms(settings) == 7'000'000);
  settings.timeout_ms = 5;
  CHECK(silence_limit_ms(settings) == 60'000);
  settings.timeout_ms = INT_MAX;
  CHECK(silence_limit_ms(settings) == 60'000);
  settings.timeout_ms = std::int64_t{1} << 40;
  CHECK(silence_limit_ms(settings) == 60'000);
  settings.network_timeout_ms = 3000;
  CHECK(silence_limit_ms(settings) == 3000);
}

TEST_CASE("settings: the default and each value are read as they are written") {
  for (const Variable& variable : variables()) {
    const std::string fallback = fallback_of(variable);
    INFO(variable.name << "=" << fallback);
    REQUIRE_FALSE(fallback.empty());
    if (fallback[0] != '(') CHECK(check_variable(variable.name, fallback).is_ok());
    if (variable.access.read == nullptr) continue;
    Settings settings;
    const std::string value = set_another_value(variable, &settings);
    CHECK(variable.access.write(settings) == value);
    Settings copy;
    variable.access.copy(settings, &copy);
    CHECK(variable.access.write(copy) == value);
    REQUIRE(apply_setting(variable.name, std::string(variable.name), "", &settings).is_ok());
    CHECK(variable.access.write(settings) == variable.access.write(Settings()));
    if (fallback[0] != '(') CHECK(variable.access.write(settings) == fallback);
  }
  CHECK_FALSE(check_variable("TUTTI_BIND", "socket").is_ok());
  CHECK_FALSE(check_variable("TUTTI_LOG", "loud").is_ok());
  CHECK(check_variable("TUTTI_ROOT", "anything").is_ok());
}

TEST_CASE("settings: rank 0 tells the values that it decides, and no others") {
  CHECK(tell_decided(Settings()).empty());
  Settings first;
  for (const Variable& variable : variables()) {
    if (variable.access.read != nullptr) set_another_value(variable, &first);
  }
  const std::string told = tell_decided(first);
  Settings heard;
  Settings inherited;
  REQUIRE(hear_decided(told, &heard).is_ok());
  inherit_decided(first, &inherited);
  for (const Variable& variable : variables()) {
    if (variable.access.read == nullptr) continue;
    INFO(variable.name);
    const Settings& expected = variable.decides == Decides::kRankZero ? first : Settings();
    CHECK(variable.access.write(heard) == variable.access.write(expected));
    CHECK(variable.access.write(inherited) == variable.access.write(expected));
  }
  REQUIRE(hear_decided("", &first).is_ok());  // the defaults
  CHECK(tell_decided(first).empty());
  for (std::size_t size = 1; size < told.size(); ++size) {
    const std::string_view part = std::string_view(told).substr(0, size);
    INFO(part);
    CHECK((hear_decided(part, &heard).code() == Code::kRemoteError) == (part.back() != '\0'));
  }
  const auto entry = [](std::string text) { return text + '\0'; };
  for (const std::string& damaged : {entry("TUTTI_CHECK"), entry("TUTTI_TIMEOUT_MS=1"), entry("TUTTI_CHECK=loud"),
                                     entry("TUTTI_LOG=debug"), entry(""), entry("=")}) {
    INFO(damaged);
    CHECK(hear_decided(damaged, &heard).code() == Code::kRemoteError);
  }
}

TEST_CASE("an unknown log level is reported") {
  for (const char* level : {"", "error", "warn", "info", "debug", "INFO", "Warn"}) {
    INFO(level);
    ::setenv("TUTTI_LOG", level, 1);
    CHECK(unknown_variables().empty());
  }
  for (const char* level : {"verbose", "WARN ", "infos", "2"}) {
    ::setenv("TUTTI_LOG", level, 1);
    const auto told = unknown_variables();
    REQUIRE(told.size() == 1);
    CHECK(told[0].find("TUTTI_LOG=\"" + std::string(level) + "\"") != std::string::npos);
    CHECK(told[0].find("debug") != std::string::npos);
  }
  ::unsetenv("TUTTI_LOG");
}

}  // namespace tutti::internal::test
