#include "os/mutex.h"

namespace tutti::internal {

void Mutex::lock_when_free() {
  os::Scheduler* const simulated = os::scheduler();
  if (simulated == nullptr) return mutex_.lock();
  do simulated->await_unlock();
  while (!mutex_.try_lock());
}

bool ConditionVariable::wait_simulated(Mutex& mutex, std::int64_t deadline_ns) {
  mutex.mutex_.unlock();
  const bool in_time = os::scheduler()->wait(this, deadline_ns);
  if (!mutex.mutex_.try_lock()) mutex.lock_when_free();
  return in_time;
}

}  // namespace tutti::internal
