#include "base/lasting_thread.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <list>
#include <memory>
#include <utility>

#include "base/event_fd.h"
#include "base/log.h"
#include "base/service_thread.h"
#include "os/fork.h"
#include "os/kernel.h"
#include "os/mutex.h"

namespace tutti::internal {
namespace {

// Signals a thread to end. Its descriptor is closed as soon as the thread no longer needs it, because the process may
// run long without starting another.
class Control {
 public:
  Status create() {
    const MutexLock lock(mutex_);
    auto made = EventFd::create();
    if (!made.is_ok()) return made.status();
    stop_ = std::move(*made);
    return {};
  }
  [[nodiscard]] int stop_fd() const {
    const MutexLock lock(mutex_);
    return stop_.fd();
  }
  void stop() {
    const MutexLock lock(mutex_);
    stop_.ring();
  }
  void end() {
    {
      const MutexLock lock(mutex_);
      stop_.reset();
    }
    ended_ = true;
  }
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  mutable Mutex mutex_;
  EventFd stop_ TUTTI_GUARDED_BY(mutex_);
  std::atomic<bool> ended_{false};
};

// Of all that follows. Never destroyed, made when the library is loaded. Threads are joined when it has been given up:
// they take other locks, and a thread that forks may hold those and wait for this one.
ForkMutex& mutex = *new ForkMutex;

class LastingThreads {
 public:
  struct Listed {
    std::shared_ptr<Control> control;
    ServiceThread thread;  // joined where the entry ends
    pid_t owner = 0;
  };
  using Entries = std::list<Listed>;

  // Signals all threads to end, and returns them. Permanent: threads of the application may still call while the
  // process exits.
  Entries end() TUTTI_REQUIRES(mutex) {
    ended_ = true;
    for (Listed& entry : entries_) {
      if (entry.owner == os::kernel().getpid()) {
        entry.control->stop();
      } else {
        entry.thread.forget();
      }
    }
    return std::exchange(entries_, {});
  }

  // Adds to *over the threads that have ended by themselves.
  Status start(std::function<void(int)> body, Entries* over) TUTTI_REQUIRES(mutex) {
    if (ended_) return {Code::kSystemError, "this process is exiting"};
    for (auto it = entries_.begin(); it != entries_.end();) {
      const auto entry = it++;
      if (entry->owner == os::kernel().getpid() && entry->control->ended()) over->splice(over->end(), entries_, entry);
    }
    auto control = std::make_shared<Control>();
    if (Status s = control->create(); !s.is_ok()) return s;
    Listed& entry = entries_.emplace_back();
    entry.control = control;
    entry.owner = os::kernel().getpid();
    Status started = entry.thread.start([control, body = std::move(body)] {
      // The served ranks detect the end by their connections.
      if (Status s = guarded([&] { return body(control->stop_fd()), Status(); }); !s.is_ok()) {
        static_cast<void>(guarded([&] { return log::warn("a service ended: " + s.message()), Status(); }));
      }
      control->end();
    });
    if (!started.is_ok()) entries_.pop_back();
    return started;
  }

 private:
  Entries entries_ TUTTI_GUARDED_BY(mutex);
  bool ended_ TUTTI_GUARDED_BY(mutex) = false;
};

LastingThreads& threads = *new LastingThreads;
constinit bool ends_at_exit TUTTI_GUARDED_BY(mutex) = false;

void end_all() {
  LastingThreads::Entries over;
  const MutexLock lock(mutex);
  over = threads.end();
}

}  // namespace

Status start_lasting_thread(std::function<void(int stop_fd)> body) {
  LastingThreads::Entries over;
  const MutexLock lock(mutex);
  // Later than what the threads are built on, and so called earlier.
  if (!std::exchange(ends_at_exit, true) && std::atexit(end_all) != 0) {
    ends_at_exit = false;
    return Status::out_of_memory();
  }
  return threads.start(std::move(body), &over);
}

}  // namespace tutti::internal
