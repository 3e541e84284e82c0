#include "executor/progress_thread.h"

#include <dirent.h>
#include <sched.h>

#include <cstdlib>
#include <utility>

#include "executor/turn_taking.h"
#include "os/asymmetric_fence.h"
#include "os/bound_processors.h"
#include "os/clock.h"
#include "os/processor.h"

namespace tutti::internal::executor {
namespace {

// The thread that creates the engine may be bound to one processor, on which it computes while the engine runs. So the
// engine's thread may use the processors of all threads of the process together; if TUTTI_BIND has bound threads, at
// most the processors of that binding.
void use_processors_of_process() {
  cpu_set_t all;
  CPU_ZERO(&all);
  DIR* const threads = ::opendir("/proc/self/task");
  if (threads == nullptr) return;
  while (const dirent* const thread = ::readdir(threads)) {
    cpu_set_t one;
    const auto id = static_cast<pid_t>(std::strtol(thread->d_name, nullptr, 10));
    if (id > 0 && ::sched_getaffinity(id, sizeof one, &one) == 0) CPU_OR(&all, &all, &one);
  }
  ::closedir(threads);
  if (const auto bound = bound_processors()) CPU_AND(&all, &all, &*bound);
  (void)::sched_setaffinity(0, sizeof all, &all);
}

}  // namespace

Status ProgressThread::start(bool moves) {
  auto wakeup_fd = transport::WakeupFd::create();
  if (!wakeup_fd.is_ok()) return wakeup_fd.status();
  wakeup_fd_ = std::make_unique<transport::WakeupFd>(std::move(*wakeup_fd));
  auto set = transport::EventSet::create();
  if (!set.is_ok()) return set.status();
  set_ = std::move(*set);
  if (Status s = set_.add_wakeup(wakeup_fd_->fd()); !s.is_ok()) return s;
  const auto body = [this, moves] {
    if (moves) use_processors_of_process();
    run();
  };
  return thread_.start(body, kWorkStackBytes);
}

ProgressThread::~ProgressThread() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  wake();
  thread_.join();
}

void ProgressThread::submit(Task* task) {
  count_.fetch_add(1, std::memory_order_relaxed);
  {
    const MutexLock lock(mutex_);
    task->next_ = nullptr;
    (new_ == nullptr ? new_ : newest_->next_) = task;
    newest_ = task;
  }
  wake();
}

// Either the thread sees woken_ before it sleeps, or this function sees that it sleeps.
void ProgressThread::wake() {
  woken_.store(true);
  if (sleeping_.load()) EventFd::ring(wakeup_fd_->fd());
}

void ProgressThread::run() {
  for (;;) {
    if (woken_.load(std::memory_order_relaxed)) {
      (void)woken_.exchange(false);
      if (!take_new()) return;
    }
    if (advance_all()) {
      idle_passes_ = 0;
    } else {
      rest();
    }
  }
}

// Appends the new tasks. Returns false if the engine must end; then it has appended none.
bool ProgressThread::take_new() {
  const MutexLock lock(mutex_);
  if (ending_) return false;
  if (new_ == nullptr) return true;
  Task** last = &tasks_;
  while (*last != nullptr) last = &(*last)->next_;
  *last = std::exchange(new_, nullptr);
  return true;
}

bool ProgressThread::advance_all() {
  const std::int64_t now = now_ns();
  bool moved = false;
  for (Task** at = &tasks_; *at != nullptr;) {
    Task* const task = *at;
    const Progress progress = task->advance(now);
    moved = moved || progress != Progress::kIdle;
    if (progress == Progress::kDone) {
      Task* const next = task->next_;
      watch(task, -1);
      if (!task->release()) {
        *at = next;
        count_.fetch_sub(1, std::memory_order_relaxed);
        continue;
      }
    }
    at = &task->next_;
  }
  return moved;
}

// Makes `fd` wake the thread for this task, in place of the earlier descriptor. Returns whether it does.
bool ProgressThread::watch(Task* task, int fd) {
  if (task->watched_ == fd) return true;
  const int before = std::exchange(task->watched_, -1);
  if (before >= 0 && !is_watched(before)) set_.remove_wakeup(before);
  const bool added = fd >= 0 && (is_watched(fd) || set_.add_wakeup(fd).is_ok());
  task->watched_ = added ? fd : -1;
  return added || fd < 0;
}

bool ProgressThread::is_watched(int fd) const {
  for (const Task* task = tasks_; task != nullptr; task = task->next_) {
    if (task->watched_ == fd) return true;
  }
  return false;
}

// Called after a pass in which nothing moved.
void ProgressThread::rest() {
  bool takes_turns = false;
  for (const Task* task = tasks_; task != nullptr; task = task->next_) takes_turns = takes_turns || task->takes_turns();
  if (idle_passes_ < kSpins + 2) ++idle_passes_;
  if (idle_passes_ <= kSpins && tasks_ != nullptr && !takes_turns) {
    pause_processor();
    return;
  }
  const std::int64_t begin_ns = now_ns();
  if (idle_passes_ == 1 || (idle_passes_ == kSpins + 1 && tasks_ != nullptr)) idle_since_ns_ = begin_ns;
  if (trials_.sleeps() || begin_ns - idle_since_ns_ > (tasks_ == nullptr ? kLingerNs : kYieldNs)) return sleep();
  ::sched_yield();
  trials_.note(now_ns() - begin_ns);
}

bool ProgressThread::arm_all() {
  bool quiet = true;
  for (Task* task = tasks_; task != nullptr && quiet; task = task->next_) quiet = task->arm(set_);
  return quiet;
}

// Arms twice with a fence between, like a waiter, so that every peer sees that this thread sleeps before the peer acts.
void ProgressThread::sleep() {
  bool all_watched = true;
  for (Task* task = tasks_; task != nullptr; task = task->next_) {
    all_watched = watch(task, task->wakeup_fd()) && all_watched;
  }
  sleeping_.store(true);
  bool quiet = !woken_.load() && arm_all();
  if (quiet && tasks_ != nullptr) {
    asymmetric_fence_heavy();
    quiet = arm_all();
  }
  if (quiet) {
    // Tasks that cannot be watched, because memory is missing, are looked at again soon.
    const int longest = all_watched && asymmetric_fence_works() ? kMaxSleepMs : kUnfencedSleepMs;
    (void)set_.take(tasks_ == nullptr ? -1 : longest);
  } else {
    ::sched_yield();
  }
  sleeping_.store(false);
  for (Task* task = tasks_; task != nullptr; task = task->next_) task->disarm();
}

}  // namespace tutti::internal::executor
