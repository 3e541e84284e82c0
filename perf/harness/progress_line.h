// A line that says what long work is doing, on a terminal only: the next one, or what is printed, replaces it.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

namespace tutti::internal::perf {

// Threads: one at a time.
class ProgressLine {
 public:
  ProgressLine() = default;
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Whether the caller may leave out what makes the text.
  [[nodiscard]] bool shows() const { return terminal_; }
  void show(const std::string& text) {
    if (!terminal_) return;
    std::fprintf(stderr, "\r%s\033[K", text.c_str());
    std::fflush(stderr);
    shown_ = true;
  }
  // Before anything else is printed.
  void clear() {
    if (!shown_) return;
    std::fprintf(stderr, "\r\033[K");
    std::fflush(stderr);
    shown_ = false;
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool shown_ = false;
};

}  // namespace tutti::internal::perf
