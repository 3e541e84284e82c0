// The pause between two polls of a word that another thread, a peer process or a device writes without waking the
// reader. No other wait of the library sleeps for a fixed time.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

#include "os/clock.h"
#include "os/scheduler.h"

namespace tutti::internal {

class LookAgain {
 public:
  // The writer will probably write soon, and may need this processor for it: so the first pauses only yield.
  void pause() {
    if (os::Scheduler* const simulated = os::scheduler(); simulated != nullptr) {
      simulated->sleep_ns(1'000'000);
    } else if (soon_.passed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else {
      ::sched_yield();
    }
  }

 private:
  const Deadline soon_ = Deadline::after_ms(1);
};

}  // namespace tutti::internal
