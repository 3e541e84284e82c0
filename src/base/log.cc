#include "base/log.h"

#include <unistd.h>

#include <atomic>

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

// No guarded static: a forked child would wait for the thread that has been reading it.
bool enabled(Level level) {
  static std::atomic<int> most{-1};
  int value = most.load(std::memory_order_relaxed);
  if (value < 0) {
    value = static_cast<int>(level_from_environment());
    most.store(value, std::memory_order_relaxed);
  }
  return static_cast<int>(level) <= value;
}

void write(Level level, const std::string& line) {
  static constexpr const char* kNames[] = {"error", "warn", "info", "debug"};
  const std::string text =
      "tutti " + std::to_string(::getpid()) + " " + kNames[static_cast<int>(level)] + ": " + line + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace tutti::log
