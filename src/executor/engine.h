// The progress engine: drives the queued operations of all communicators of this process, so that they complete even if
// ranks have queued them in different orders. It has one thread, or more with TUTTI_PROGRESS_THREADS; each drives its
// operations in turn, without waiting for any of them.
//
// Ownership: the owners of tasks keep the engine; its threads end with the last of them. A forked child makes its own.
// Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "base/status.h"
#include "executor/progress_thread.h"

namespace tutti::internal::executor {

inline constexpr int kMostProgressThreads = 64;

class Engine {
 public:
  // The process's engine, with at least `threads` running threads. `moves`: threads that are created now may use the
  // processors of all threads of the process; else only those of the calling thread. REQUIRES: 1 <= threads <=
  // kMostProgressThreads. An error if no thread can be created; beyond the first, as many as possible are created.
  static Result<std::shared_ptr<Engine>> get(int threads, bool moves);
  // Wakes the process's engine, if there is one: an event has occurred for which a task may wait.
  static void wake_current();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Gives the task to the thread with the fewest. REQUIRES: the engine does not have it. The task must exist while the
  // engine has it, and its owner keeps the engine.
  void submit(Task* task);
  void wake();

 private:
  Engine() = default;
  Status grow(int threads, bool moves);

  std::array<std::unique_ptr<ProgressThread>, kMostProgressThreads> threads_;
  std::atomic<int> count_{0};  // of threads_; grows under the registry's lock
};

}  // namespace tutti::internal::executor
