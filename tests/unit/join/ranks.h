// Ranks as threads and as processes, for the tests of this folder.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/failure.h"
#include "join/join.h"
#include "os/clock.h"

namespace tutti::internal::test {

// Runs `body(rank)` on one thread per rank and returns when all have returned.
inline void on_threads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

// Polls until `condition` is true. False if it is not within `ms`.
inline bool eventually(const std::function<bool()>& condition, std::int64_t ms = 20'000) {
  const Deadline deadline = Deadline::after_ms(ms);
  while (!condition()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// A forked process that runs `body` and exits with its result; the destructor kills it.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(body());
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    kill(SIGKILL);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  void kill(int signal) const {
    if (pid_ > 0) ::kill(pid_, signal);
  }
  // The exit status, or -1 for a signal.
  int wait() {
    int status = 0;
    if (pid_ <= 0 || ::waitpid(pid_, &status, 0) != pid_) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
};

struct Watcher {
  Job job;
  std::shared_ptr<FailureState> failure = std::make_shared<FailureState>();
};

}  // namespace tutti::internal::test
