// Diagnostics on standard error, by TUTTI_LOG = error | warn (default) | info | debug. Each line has the time (UTC),
// the host and the process, and once that is known the rank:
//   2026-01-02T03:04:05.678Z node1 tutti[4321] rank 0 warn: ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::internal::log {

enum class Level : int { kError = 0, kWarn = 1, kInfo = 2, kDebug = 3 };

// A value of TUTTI_LOG, in any case (NCCL's are in upper case). None: it is no level.
[[nodiscard]] std::optional<Level> level_named(std::string_view name);
// With control characters as numbers: a text may contain the value of a variable, which may be anything, and must
// neither move a terminal's cursor nor begin a line.
[[nodiscard]] std::string printable(std::string_view text);
[[nodiscard]] bool has_controls(std::string_view text);
[[nodiscard]] bool enabled(Level level);
// One line, written with one system call. Any thread.
void write(Level level, const std::string& line);
// From now on lines say that this process has the rank, beside those of the same job that it has already; of further
// jobs nothing is said. `job`: a number of its own. True: it is the first job. Any thread.
bool add_rank(std::uint64_t job, int rank);

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
