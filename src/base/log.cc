#include "base/log.h"

#include <unistd.h>

#include "base/config.h"

namespace tutti::log {
namespace {

Level level_from_environment() {
  const auto text = environment_variable("TUTTI_LOG");
  if (!text) return Level::kWarn;
  if (*text == "error") return Level::kError;
  if (*text == "info") return Level::kInfo;
  if (*text == "debug") return Level::kDebug;
  return Level::kWarn;
}

}  // namespace

bool enabled(Level level) {
  static const Level most = level_from_environment();
  return level <= most;
}

void write(Level level, const std::string& line) {
  static constexpr const char* kNames[] = {"error", "warn", "info", "debug"};
  const std::string text =
      "tutti " + std::to_string(::getpid()) + " " + kNames[static_cast<int>(level)] + ": " + line + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace tutti::log
