// A signal that the kernel sends a thread for what that thread does (SIGPIPE, SIGXFSZ), held back while it is done
// inside a library, whose caller's dispositions are not the library's to change.
//
// Threads: of the thread that made it alone.
#pragma once

#include <csignal>

namespace tutti::internal {

class HeldSignal {
 public:
  explicit HeldSignal(int signal);
  HeldSignal(const HeldSignal&) = delete;
  HeldSignal& operator=(const HeldSignal&) = delete;
  // Takes the signal away if it has come since, from whomever; one that was pending before stays so.
  ~HeldSignal();

 private:
  sigset_t signal_;
  sigset_t before_;
  bool was_pending_;
};

}  // namespace tutti::internal
