#include "os/held_signal.h"

#include <pthread.h>

#include <cerrno>
#include <ctime>

namespace tutti::internal {

HeldSignal::HeldSignal(int signal) {
  sigset_t pending;
  sigemptyset(&signal_);
  sigaddset(&signal_, signal);
  sigemptyset(&pending);
  ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  ::sigpending(&pending);
  was_pending_ = sigismember(&pending, signal) == 1;
}

HeldSignal::~HeldSignal() {
  const int kept = errno;
  const timespec at_once{};
  while (!was_pending_ && ::sigtimedwait(&signal_, nullptr, &at_once) < 0 && errno == EINTR) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = kept;
}

}  // namespace tutti::internal
