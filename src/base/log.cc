#include "base/log.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <climits>

#include "base/config.h"

namespace tutti::internal::log {
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

// Nobody waits for who reads standard error, least of all the threads by whose answers other ranks know that this one
// lives: what it does not take now is lost, and the next line says how many were.
void write(Level level, const std::string& line) {
  static constexpr const char* kNames[] = {"error", "warn", "info", "debug"};
  static std::atomic<unsigned> lost{0};
  pollfd p{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&p, 1, 0) <= 0 || (p.revents & POLLOUT) == 0) {
    ++lost;
    return;
  }
  const std::string begin = fmt::format("tutti {} ", ::getpid());
  std::string text = begin + kNames[static_cast<int>(level)] + ": " + line;
  // So much a pipe that can be written to has room for, and takes in one piece.
  if (text.size() >= PIPE_BUF) text.resize(PIPE_BUF - 1);
  text += "\n";
  const unsigned before = lost.exchange(0);
  const std::string gap =
      before == 0 ? "" : fmt::format("{}warn: {} lines before this one were lost: nobody took them\n", begin, before);
  if (gap.size() + text.size() <= PIPE_BUF) {
    text.insert(0, gap);
  } else {
    lost += before;
  }
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace tutti::internal::log
