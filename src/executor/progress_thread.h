// One thread of the progress engine: drives its tasks in turn and without waiting for any of them. It spins while
// something moves, then yields, then sleeps until a peer, a new task or another thread wakes it.
//
// Threads: as said below; it outlives its tasks' stay.
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

// What the engine drives: of one communicator. Called by one of the engine's threads alone, from Engine::submit() until
// release() has returned false.
class Task {
 public:
  virtual ~Task() = default;
  // Moves what can move. kDone: there is nothing to do.
  virtual Progress advance(std::int64_t now_ns) = 0;
  // Before the thread sleeps in the set: from now on, what the task waits for is an event of the set, which has
  // wakeup_fd(), or calls Engine::wake(). False if something has happened already. May be called twice before disarm(),
  // which comes after the sleep. Before anything else may wait for the same descriptors, the task takes from the set
  // what it has added. The set outlives the task.
  virtual bool arm(const transport::EventSet& set) = 0;
  virtual void disarm() = 0;
  // Tasks may share it. -1: no peer rings for what the task waits for at present.
  [[nodiscard]] virtual int wakeup_fd() const = 0;
  // Whether ranks share processors, so that spinning keeps from them what they need to get on.
  [[nodiscard]] virtual bool takes_turns() const = 0;
  // After kDone: whether there is more to do meanwhile. If not, the engine does not touch the task any more.
  virtual bool release() = 0;

 protected:
  Task() = default;

 private:
  friend class ProgressThread;
  Task* next_ = nullptr;  // in one of the thread's lists
  int watched_ = -1;      // wakeup_fd() as it is in the thread's set
};

class ProgressThread {
 public:
  ProgressThread() = default;
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;
  // It has no tasks.
  ~ProgressThread();

  // `moves`: it may use the processors of all threads of the process; else those of the calling thread alone.
  Status start(bool moves);
  // Any thread. REQUIRES: no thread of the engine has it.
  void submit(Task* task) TUTTI_EXCLUDES(mutex_);
  void wake();
  // Tasks that it has at present.
  [[nodiscard]] int tasks() const { return count_.load(std::memory_order_relaxed); }

 private:
  // Nothing moves: so many passes before the first yield, and so long until it sleeps.
  static constexpr int kSpins = 200;
  static constexpr std::int64_t kYieldNs = 2'000'000;
  // Without a task. Who waits for an operation often queues the next one at once; to wake a thread takes 10 to 30 us.
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
  // The thread's.
  Task* tasks_ = nullptr;
  int idle_passes_ = 0;
  std::int64_t idle_since_ns_ = 0;
  YieldTrials trials_;

  std::atomic<int> count_{0};
  std::atomic<bool> woken_{false};     // since the last pass
  std::atomic<bool> sleeping_{false};  // or about to
  Mutex mutex_;
  Task* new_ TUTTI_GUARDED_BY(mutex_) = nullptr;
  Task* newest_ TUTTI_GUARDED_BY(mutex_) = nullptr;
  bool ending_ TUTTI_GUARDED_BY(mutex_) = false;
  ServiceThread thread_;
};

}  // namespace tutti::internal::executor
