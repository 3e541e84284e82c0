// Time and blocking, which tests can simulate (tests/sim/world.h). Normally there is no scheduler: clock.h, mutex.h and
// look_again.h use the system's clock, locks and sleep, after one predictable branch.
#pragma once

#include <cstdint>

namespace tutti::internal::os {

class Scheduler {
 public:
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  virtual ~Scheduler() = default;
  // Monotonic.
  virtual std::int64_t now_ns() = 0;
  virtual void sleep_ns(std::int64_t ns) = 0;
  // The calling thread wants a lock that another one holds. Lets the others run.
  virtual void await_unlock() = 0;
  // Waits until notify_all() of the same condition, or returns spuriously; false: the deadline has passed. No other
  // thread runs between the caller's last check and the wait.
  virtual bool wait(const void* condition, std::int64_t deadline_ns) = 0;
  virtual void notify_all(const void* condition) = 0;

 protected:
  Scheduler() = default;
};

namespace detail {
extern constinit Scheduler* scheduler;
}

// Null: the system's.
inline Scheduler* scheduler() {
  return detail::scheduler;
}
// REQUIRES: no other thread of the library runs.
void set_scheduler(Scheduler* simulated);

}  // namespace tutti::internal::os
