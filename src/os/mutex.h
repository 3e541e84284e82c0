// Locks whose use Clang can prove at compile time (-Wthread-safety, in the suite "tidy"): data that is TUTTI_GUARDED_BY
// a mutex is accessed only while it is held, and a function that TUTTI_REQUIRES the mutex is called only while it is
// held. All locks of the library are these. For GCC the annotations are empty.
//
// Clang checks each function by itself, and a lambda is a function: it locks the data that it accesses, or states with
// assert_held() that its caller holds the lock. So waits are loops here, without a predicate.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>

#include "os/clock.h"
#include "os/scheduler.h"

#if defined(__clang__)
#define TUTTI_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define TUTTI_THREAD_ATTRIBUTE(attribute)
#endif
// For a variable or member.
#define TUTTI_GUARDED_BY(mutex) TUTTI_THREAD_ATTRIBUTE(guarded_by(mutex))
// For a function: its caller holds the mutex; it locks the mutex; it unlocks it. Without an argument: this object.
#define TUTTI_REQUIRES(...) TUTTI_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define TUTTI_ACQUIRE(...) TUTTI_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define TUTTI_RELEASE(...) TUTTI_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
// For a function: it locks the mutex itself, so its caller must not hold it.
#define TUTTI_EXCLUDES(...) TUTTI_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))

namespace tutti::internal {

class TUTTI_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() TUTTI_ACQUIRE() {
    if (!mutex_.try_lock()) lock_when_free();
  }
  void unlock() TUTTI_RELEASE() { mutex_.unlock(); }
  // Does nothing: for code in which Clang cannot see that this thread holds the mutex.
  void assert_held() const TUTTI_THREAD_ATTRIBUTE(assert_capability()) {}

 private:
  friend class ConditionVariable;
  void lock_when_free();
  std::mutex mutex_;
};

// Holds a mutex while it exists, except between unlock() and lock().
class TUTTI_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TUTTI_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() TUTTI_RELEASE() {
    if (held_) mutex_.unlock();
  }
  void unlock() TUTTI_RELEASE() {
    mutex_.unlock();
    held_ = false;
  }
  void lock() TUTTI_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

class ConditionVariable {
 public:
  // Unlocks the mutex until another thread notifies, or returns spuriously: call it in a loop that checks the
  // condition.
  void wait(Mutex& mutex) TUTTI_REQUIRES(mutex) {
    if (os::scheduler() != nullptr) [[unlikely]] {
      static_cast<void>(wait_simulated(mutex, kForever));
      return;
    }
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }
  // The same until the deadline at the latest; false if it has passed.
  bool wait_until(Mutex& mutex, Deadline deadline) TUTTI_REQUIRES(mutex) {
    if (os::scheduler() != nullptr) [[unlikely]]
      return wait_simulated(mutex, deadline.at_ns());
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline.at_ns())};
    const bool in_time = changed_.wait_until(lock, until) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void notify_all() {
    if (os::Scheduler* const simulated = os::scheduler(); simulated != nullptr) [[unlikely]]
      return simulated->notify_all(this);
    changed_.notify_all();
  }

 private:
  static constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();
  bool wait_simulated(Mutex& mutex, std::int64_t deadline_ns) TUTTI_REQUIRES(mutex);

  std::condition_variable changed_;
};

}  // namespace tutti::internal
