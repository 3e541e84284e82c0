// Threads of the process for what its groups do beside the program's threads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace tutti_torch {

// As many as have something to do at a time. One that has nothing to do ends after a while. Any thread.
class SharedThreads {
 public:
  static SharedThreads& get();
  // Runs it in one of them. Throws if none is free and none can be made.
  void run(std::function<void()> job);

 private:
  SharedThreads() = default;
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::size_t idle_ = 0;
};

}  // namespace tutti_torch
