// Blocks a signal that the kernel sends a thread for its own action (SIGPIPE, SIGXFSZ), while a library performs that
// action. A library must not change its caller's signal dispositions.
//
// Threads: only the thread that made it.
#pragma once

#include <csignal>

namespace tutti::internal {

class HeldSignal {
 public:
  explicit HeldSignal(int signal);
  HeldSignal(const HeldSignal&) = delete;
  HeldSignal& operator=(const HeldSignal&) = delete;
  // Discards the signal if it has arrived since, from any source; an earlier pending one stays pending.
  ~HeldSignal();

 private:
  sigset_t signal_;
  sigset_t before_;
  bool was_pending_;
};

}  // namespace tutti::internal
