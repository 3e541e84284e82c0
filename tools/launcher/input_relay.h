// The terminal's input for a rank. Only the terminal's foreground group may read from it, and that is the launcher's.
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <vector>

#include "os/unique_fd.h"

namespace tutti::internal::tools {

// Used as MergedOutput is. While there is none to relay to, it does nothing.
class InputRelay {
 public:
  InputRelay() = default;
  // `sink`: does not wait.
  explicit InputRelay(UniqueFd sink) : sink_(std::move(sink)) {}

  void watch(std::vector<pollfd>* entries, int* timeout_ms);
  void serve(const std::vector<pollfd>& entries);

 private:
  UniqueFd sink_;
  std::array<char, 4096> bytes_{};  // those from begin_ to end_ have yet to be passed on
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t entry_ = 0;
  bool watched_ = false;
};

}  // namespace tutti::internal::tools
