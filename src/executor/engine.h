// The progress engine: drives the queued operations of all communicators of this process, so that they complete in
// whatever order ranks have queued them. One thread, unless more are asked for (TUTTI_PROGRESS_THREADS); each drives
// the operations that it has been given in turn and without waiting for any of them.
//
// Ownership: who has tasks keeps the engine; with the last of them its threads end. A forked child makes its own.
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
  // The process's, with at least so many threads, which run. `moves`: threads that are made now may use the processors
  // of all threads of the process; else those of the calling thread alone. REQUIRES: 1 <= threads <=
  // kMostProgressThreads. An error if there is none; of threads beyond the first, as many as can be made.
  static Result<std::shared_ptr<Engine>> get(int threads, bool moves);
  // Wakes the process's, if there is one: something has happened that a task may wait for.
  static void wake_current();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Gives it to the thread that has the fewest. REQUIRES: the engine has not got it. The task outlives its stay, and
  // its owner keeps the engine.
  void submit(Task* task);
  void wake();

 private:
  Engine() = default;
  Status grow(int threads, bool moves);

  std::array<std::unique_ptr<ProgressThread>, kMostProgressThreads> threads_;
  std::atomic<int> count_{0};  // of threads_; grows under the registry's lock
};

}  // namespace tutti::internal::executor
