// One thread of the progress engine: drives its tasks in turn, without waiting for any of them. It spins while tasks
// move, then yields, then sleeps until a peer, a new task or another thread wakes it.
//
// Threads: as stated below; it must exist as long as it has tasks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/service_thread.h"
#include "base/status.h"
#include "executor/cpu_executor.h"
#include "os/mutex.h"
#include "transport/event_set.h"
#include "transport/wakeup_fd.h"

namespace tutti::internal::executor {

// The engine's part of one communicator. Called by one of the engine's threads only, from Engine::submit() until
// release() has returned false.
class Task {
 public:
  virtual ~Task() = default;
  // Moves everything that can move. kDone: there is nothing to do.
  virtual Progress advance(std::int64_t now_ns) = 0;
  // Called before the thread sleeps in the set: from now on, the events for which the task waits either wake the set,
  // which has wakeup_fd(), or call Engine::wake(). False if such an event has occurred already. May be called twice
  // before disarm(), which comes after the sleep. Before another thread may wait for the same descriptors, the task
  // removes from the set those that it has added. The set outlives the task.
  virtual bool arm(const transport::EventSet& set) = 0;
  virtual void disarm() = 0;
  // Tasks may share it. -1: at present no peer rings for this task.
  [[nodiscard]] virtual int wakeup_fd() const = 0;
  // Whether ranks share processors, so that a spinning thread delays the others.
  [[nodiscard]] virtual bool takes_turns() const = 0;
  // Called after kDone: whether there is more to do meanwhile. If not, the engine does not touch the task any more.
  virtual bool release() = 0;

 protected:
  Task() = default;

 private:
  friend class ProgressThread;
  Task* next_ = nullptr;  // in one of the thread's lists
  int watched_ = -1;      // the wakeup_fd() that is in the thread's set
};

class ProgressThread {
 public:
  ProgressThread() = default;
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;
  // REQUIRES: it has no tasks.
  ~ProgressThread();

  // `moves`: it may use the processors of all threads of the process; otherwise only those of the calling thread.
  Status start(bool moves);
  // Any thread. REQUIRES: no thread of the engine has the task.
  void submit(Task* task) TUTTI_EXCLUDES(mutex_);
  void wake();
  // The number of its tasks.
  [[nodiscard]] int tasks() const { return count_.load(std::memory_order_relaxed); }

 private:
  // If nothing moves: passes before the first yield, and the time until it sleeps.
  static constexpr int kSpins = 200;
  static constexpr std::int64_t kYieldNs = 2'000'000;
  // The time to stay awake without a task. A thread that waits for an operation often queues the next one at once;
  // waking a thread takes 10 to 30 us.
  static constexpr std::int64_t kLingerNs = 50'000;
  static constexpr int kMaxSleepMs = 50;

  void run();
  bool take_new() TUTTI_EXCLUDES(mutex_);
  bool advance_all();
  bool watch(Task* task, int fd);
  [[nodiscard]] bool is_watched(int fd) const;
  void rest();
  bool arm_all();
  void sleep();

  transport::EventSet set_;
  std::unique_ptr<transport::WakeupFd> wakeup_fd_;
  // Used by the thread only.
  Task* tasks_ = nullptr;
  int idle_passes_ = 0;
  std::int64_t idle_since_ns_ = 0;
  YieldTrials trials_;

  std::atomic<int> count_{0};
  std::atomic<bool> woken_{false};     // set since the last pass
  std::atomic<bool> sleeping_{false};  // sleeps or is about to
  Mutex mutex_;
  Task* new_ TUTTI_GUARDED_BY(mutex_) = nullptr;
  Task* newest_ TUTTI_GUARDED_BY(mutex_) = nullptr;
  bool ending_ TUTTI_GUARDED_BY(mutex_) = false;
  ServiceThread thread_;
};

}  // namespace tutti::internal::executor
