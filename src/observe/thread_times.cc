#include "observe/thread_times.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <string>

#include "base/first_use.h"
#include "os/clock.h"
#include "os/fork.h"
#include "os/unique_fd.h"

namespace tutti::internal::observe {
namespace {

// "932573 374362 6": run, delay, number of turns.
std::optional<ThreadTimes> parse(int fd) {
  std::array<char, 96> text{};
  if (::pread(fd, text.data(), text.size() - 1, 0) <= 0) return std::nullopt;
  unsigned long long run_ns = 0;
  unsigned long long delay_ns = 0;
  if (std::sscanf(text.data(), "%llu %llu", &run_ns, &delay_ns) != 2) return std::nullopt;
  return ThreadTimes{run_ns, delay_ns};
}

UniqueFd open_counts(const char* path) {
  return UniqueFd(::open(path, O_RDONLY | O_CLOEXEC));
}

std::uint64_t ns_of(clockid_t clock) {
  timespec time{};
  if (::clock_gettime(clock, &time) != 0) return 0;
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

class OwnCounts final : public ForkAware {
 public:
  OwnCounts() { enlist(); }
  void before_fork() override TUTTI_ACQUIRE(mutex_) { mutex_.lock(); }
  void after_fork_in_parent() override TUTTI_RELEASE(mutex_) { mutex_.unlock(); }
  // The descriptor is of a thread of the parent, whose id this thread does not have.
  void after_fork_in_child() override TUTTI_RELEASE(mutex_) {
    thread_ = 0;
    mutex_.unlock();
  }

  std::optional<ThreadTimes> read(int thread) {
    const MutexLock lock(mutex_);
    if (thread_ != thread) {
      fd_ = open_counts("/proc/thread-self/schedstat");
      thread_ = thread;
    }
    return fd_.valid() ? parse(fd_.get()) : std::nullopt;
  }

  void forget() {
    const MutexLock lock(mutex_);
    fd_.reset();
    thread_ = 0;
  }

 private:
  Mutex mutex_;
  UniqueFd fd_ TUTTI_GUARDED_BY(mutex_);
  int thread_ TUTTI_GUARDED_BY(mutex_) = 0;  // whose counts they are; 0: none's
};

constinit FirstUse<OwnCounts, Surplus::kKept> own_counts;

}  // namespace

Result<OwnTimes> own_times(Whose whose) {
  if (whose == Whose::kThread) {
    const int thread = ::gettid();
    const auto times = own_counts.get().read(thread);
    if (!times) return Status::system("the scheduler's counts of a thread", errno);
    return OwnTimes{thread, *times};
  }
  const UniqueFd fd = open_counts("/proc/self/schedstat");
  auto times = fd.valid() ? parse(fd.get()) : std::nullopt;
  if (!times) return Status::system("the scheduler's counts of the process", errno);
  times->run_ns = ns_of(CLOCK_PROCESS_CPUTIME_ID);
  return OwnTimes{0, *times};
}

void forget_own_times() {
  own_counts.get().forget();
}

Outside split_time(std::int64_t outside_ns, std::int64_t elapsed_ns, const ThreadTimes& passed) {
  constexpr std::int64_t kLongestNs = std::int64_t{1} << 60;
  const auto all = static_cast<double>(std::clamp<std::int64_t>(elapsed_ns, 1, kLongestNs));
  const double outside = std::clamp(static_cast<double>(outside_ns), 0.0, all);
  // All threads of a process together may run for longer.
  const double delay = std::min(static_cast<double>(passed.delay_ns), all);
  const double run = std::min(static_cast<double>(passed.run_ns), all - delay);
  const double awake = std::max(0.0, outside - (all - delay - run));
  const double waited = delay + run > 0 ? awake * delay / (delay + run) : 0;
  const auto us = [](double ns) { return static_cast<std::uint32_t>(std::min(ns / 1000, 4e9)); };
  return {us(outside), us(awake - waited), us(waited), 0};
}

std::optional<ThreadTimes> times_of(int pid, int thread) {
  const std::string process = pid == 0 ? "self" : std::to_string(pid);
  const std::string path = thread == 0 ? fmt::format("/proc/{}/schedstat", process)
                                       : fmt::format("/proc/{}/task/{}/schedstat", process, thread);
  const UniqueFd fd = open_counts(path.c_str());
  auto times = fd.valid() ? parse(fd.get()) : std::nullopt;
  clockid_t clock{};
  if (times && thread == 0 && ::clock_getcpuclockid(pid, &clock) == 0) times->run_ns = ns_of(clock);
  return times;
}

}  // namespace tutti::internal::observe
