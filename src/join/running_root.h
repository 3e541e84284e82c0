// The root services of this process, as its ranks see them.
//
// Threads: any.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <utility>

#include "base/status.h"
#include "join/unique_id.h"
#include "os/clock.h"
#include "os/kernel.h"
#include "os/mutex.h"

namespace tutti::internal {

class RunningRoot {
 public:
  explicit RunningRoot(const Secret& secret) : secret_(secret) {}
  [[nodiscard]] bool serves(const Secret& secret) const { return owner_ == os::kernel().getpid() && secret_ == secret; }
  [[nodiscard]] bool ended() const { return ended_; }
  void end() {
    const MutexLock lock(mutex_);
    ended_ = true;
    ended_now_.notify_all();
  }
  // For a rank that cannot join: its process may end at once, and the service must notify the others before.
  void await_end(Deadline deadline) const {
    const MutexLock lock(mutex_);
    while (!ended_ && ended_now_.wait_until(mutex_, deadline)) {
    }
  }
  void fail(Status why) {
    const MutexLock lock(mutex_);
    if (failure_.is_ok()) failure_ = std::move(why);
  }
  // Why the service has failed. Ok if it serves, or has completed.
  [[nodiscard]] Status failure() const {
    const MutexLock lock(mutex_);
    return failure_;
  }

 private:
  const Secret secret_;
  const pid_t owner_ = os::kernel().getpid();  // a forked child has none of its parent's services
  std::atomic<bool> ended_{false};
  mutable Mutex mutex_;
  mutable ConditionVariable ended_now_;
  Status failure_ TUTTI_GUARDED_BY(mutex_);
};

// A new service of that secret. Those that have ended are forgotten.
std::shared_ptr<RunningRoot> add_running_root(const Secret& secret);

// The last one of that secret; null: there is none.
std::shared_ptr<const RunningRoot> find_running_root(const Secret& secret);

}  // namespace tutti::internal
