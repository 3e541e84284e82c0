// Ranks as threads and as processes, for the tests of this folder.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "join/in_process.h"
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

// The ranks of a job as threads, over sockets or in shared memory, each of which watches with witness(rank).
inline std::vector<Watcher> join_all(int ranks, bool sockets, const std::function<Witness(int)>& witness) {
  constexpr std::int64_t kJoinMs = 60'000;
  const auto require = [](const Status& status) {
    if (!status.is_ok()) throw std::runtime_error(status.message());
  };
  std::vector<Watcher> watchers(static_cast<std::size_t>(ranks));
  Settings settings;
  settings.interface = "lo";
  Result<UniqueIdBytes> id = create_unique_id(settings);
  Result<std::vector<Job>> jobs = make_in_process_jobs(ranks);
  require(id.status());
  require(jobs.status());
  std::vector<Status> statuses(watchers.size());
  on_threads(ranks, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    Result<Job> job = std::move((*jobs)[r]);
    if (sockets) job = join(*id, rank, ranks, settings, Deadline::after_ms(kJoinMs));
    statuses[r] = job.status();
    if (!job.is_ok()) return;
    watchers[r].job = std::move(*job);
    ControlTree& tree = *watchers[r].job.tree;
    statuses[r] = tree.all_gather("x", Deadline::after_ms(kJoinMs)).status();
    if (statuses[r].is_ok()) statuses[r] = tree.watch(watchers[r].failure, witness(rank));
  });
  for (const Status& status : statuses) require(status);
  return watchers;
}

}  // namespace tutti::internal::test
