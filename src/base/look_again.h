// The pause between two looks at what changes without waking anybody: words that peers, devices, or threads on their
// fast path write. All other waits are for a mutex's condition, or for descriptors.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

#include "base/clock.h"

namespace tutti::internal {

class LookAgain {
 public:
  // Whoever writes it probably does so soon, and may need this processor for that: the first pauses only yield.
  void pause() {
    if (soon_.passed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else {
      ::sched_yield();
    }
  }

 private:
  const Deadline soon_ = Deadline::after_ms(1);
};

}  // namespace tutti::internal
