// Memory that schedules use between steps: one buffer per communicator, reused.
//
// Threads: one at a time.
#pragma once

#include <cstddef>

#include "base/status.h"

namespace tutti::internal {

// Grows in powers of two and never shrinks, so a steady program stops allocating. Untouched pages use no memory, and
// data that is forwarded in flight never touches them.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { free(); }

  // Null before the first grow().
  [[nodiscard]] std::byte* memory() const { return memory_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  // Has at least `bytes` afterwards. If it must grow, its contents are lost.
  Status grow(std::size_t bytes);

 private:
  void free();
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace tutti::internal
