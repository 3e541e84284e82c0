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

// A value of TUTTI_LOG, in upper or lower case (NCCL's are in upper case). Empty: not a level.
[[nodiscard]] std::optional<Level> level_named(std::string_view name);
// With control characters as numbers: a text may contain the arbitrary value of a variable, which must not move a
// terminal's cursor or begin a line.
[[nodiscard]] std::string printable(std::string_view text);
[[nodiscard]] bool has_controls(std::string_view text);
[[nodiscard]] bool enabled(Level level);
// One line, written with one system call. Any thread.
void write(Level level, const std::string& line);
// From now on log lines include this rank, besides the process's other ranks of the same job. Ranks of further jobs are
// not logged. `job`: a unique number. True: it is the first job. Any thread.
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
