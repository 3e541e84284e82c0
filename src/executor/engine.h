// The progress engine: one thread of this process that drives the queued operations of all communicators, in turn and
// without waiting for any of them, so that they complete in whatever order ranks have queued them. It spins while
// something moves, then yields, then sleeps until a peer, a new task or another thread wakes it.
//
// Ownership: who has tasks keeps the engine; with the last of them its thread ends. A forked child makes its own.
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/mutex.h"
#include "base/service_thread.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "executor/cpu_executor.h"
#include "transport/wakeup_fd.h"

namespace tutti::internal::executor {

// What the engine drives: of one communicator. Called by the engine's thread alone, from Engine::submit() until
// release() has returned false.
class Task {
 public:
  virtual ~Task() = default;
  // Moves what can move. kDone: there is nothing to do.
  virtual Progress advance(std::int64_t now_ns) = 0;
  // Before the thread sleeps: from now on, what the task waits for makes fd() readable, or calls Engine::wake(). False
  // if something has happened already. May be called twice before disarm(), which comes after the sleep.
  virtual bool arm() = 0;
  virtual void disarm() = 0;
  // The engine has it edge-triggered, so nobody need drain it, and tasks may share it. -1: only Engine::wake() tells of
  // what the task waits for at present.
  [[nodiscard]] virtual int fd() const = 0;
  // Whether ranks share processors, so that spinning keeps from them what they need to get on.
  [[nodiscard]] virtual bool takes_turns() const = 0;
  // After kDone: whether there is more to do meanwhile. If not, the engine does not touch the task any more.
  virtual bool release() = 0;

 protected:
  Task() = default;

 private:
  friend class Engine;
  Task* next_ = nullptr;  // in one of the engine's lists
  int watched_ = -1;      // fd() as it is in the engine's epoll set
};

class Engine {
 public:
  // The process's, whose thread runs. `moves`: if it is made now, its thread may use the processors of all threads of
  // the process; else those of the calling thread alone.
  static Result<std::shared_ptr<Engine>> get(bool moves = true);
  // Wakes the process's, if there is one: something has happened that a task may wait for.
  static void wake_current();
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // REQUIRES: the engine has not got it. The task outlives its stay, and its owner keeps the engine.
  void submit(Task* task) TUTTI_EXCLUDES(mutex_);
  void wake();

 private:
  // Nothing moves: so many passes before the first yield, and so long until it sleeps.
  static constexpr int kSpins = 200;
  static constexpr std::int64_t kYieldNs = 2'000'000;
  // A yield that takes so long had a program in it that does not yield: then it sleeps so many times instead.
  static constexpr std::int64_t kTimeSliceNs = 500'000;
  static constexpr int kSleepsPerSlice = 128;
  static constexpr int kMaxSleepMs = 50;

  Engine() = default;
  Status start(bool moves);
  void run();
  bool take_new() TUTTI_EXCLUDES(mutex_);
  bool advance_all();
  bool watch(Task* task, int fd);
  [[nodiscard]] bool is_watched(int fd) const;
  void rest();
  bool arm_all();
  void sleep();

  UniqueFd epoll_;
  std::unique_ptr<transport::WakeupFd> wakeup_fd_;
  // The thread's.
  Task* tasks_ = nullptr;
  int idle_passes_ = 0;
  std::int64_t idle_since_ns_ = 0;
  int sleeps_ = 0;  // to come, where it would yield

  std::atomic<bool> woken_{false};     // since the last pass
  std::atomic<bool> sleeping_{false};  // or about to
  Mutex mutex_;
  Task* new_ TUTTI_GUARDED_BY(mutex_) = nullptr;
  Task* newest_ TUTTI_GUARDED_BY(mutex_) = nullptr;
  bool ending_ TUTTI_GUARDED_BY(mutex_) = false;
  ServiceThread thread_;
};

}  // namespace tutti::internal::executor
