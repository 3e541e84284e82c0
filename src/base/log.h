// Diagnostics on standard error, by TUTTI_LOG = error | warn (default) | info | debug.
#pragma once

#include <string>

namespace tutti::internal::log {

enum class Level : int { kError = 0, kWarn = 1, kInfo = 2, kDebug = 3 };

[[nodiscard]] bool enabled(Level level);
// One line, written with one system call. Any thread.
void write(Level level, const std::string& line);

inline void warn(const std::string& line) {
  if (enabled(Level::kWarn)) write(Level::kWarn, line);
}
inline void info(const std::string& line) {
  if (enabled(Level::kInfo)) write(Level::kInfo, line);
}
inline void debug(const std::string& line) {
  if (enabled(Level::kDebug)) write(Level::kDebug, line);
}

}  // namespace tutti::internal::log
