#include "input_relay.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tutti::internal::tools {
namespace {

// How soon it is seen that the launcher has come to the foreground.
constexpr int kForegroundMs = 500;

// The kernel stops a background group that reads its terminal. A terminal of another session (-1) stops no process.
bool in_background() {
  const pid_t foreground = ::tcgetpgrp(STDIN_FILENO);
  return foreground >= 0 && foreground != ::getpgrp();
}

}  // namespace

void InputRelay::watch(std::vector<pollfd>* entries, int* timeout_ms) {
  watched_ = false;
  if (!sink_.valid()) return;
  const bool reads = begin_ == end_;
  if (reads && in_background()) {
    *timeout_ms = *timeout_ms < 0 ? kForegroundMs : std::min(*timeout_ms, kForegroundMs);
    return;
  }
  watched_ = true;
  entry_ = entries->size();
  if (reads) {
    entries->push_back({STDIN_FILENO, POLLIN, 0});
  } else {
    entries->push_back({sink_.get(), POLLOUT, 0});
  }
}

void InputRelay::serve(const std::vector<pollfd>& entries) {
  if (!watched_ || entries[entry_].revents == 0) return;
  const bool reads = begin_ == end_;
  const ssize_t moved = reads ? ::read(STDIN_FILENO, bytes_.data(), bytes_.size())
                              : ::write(sink_.get(), bytes_.data() + begin_, end_ - begin_);
  if (moved < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (moved <= 0) {  // the terminal's end of input, or a rank that has closed its own
    sink_.reset();
  } else if (reads) {
    begin_ = 0;
    end_ = static_cast<std::size_t>(moved);
  } else {
    begin_ += static_cast<std::size_t>(moved);
  }
}

}  // namespace tutti::internal::tools
