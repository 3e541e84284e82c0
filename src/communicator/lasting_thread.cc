#include "communicator/lasting_thread.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <list>
#include <memory>
#include <mutex>

#include "base/fork.h"
#include "base/log.h"
#include "base/service_thread.h"
#include "base/unique_fd.h"

namespace tutti {
namespace {

// How a thread is told to end. Its descriptor is closed as soon as the thread needs it no more: the process may live
// long without starting another.
class Control {
 public:
  Status create() {
    stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return stop_.valid() ? Status() : Status::system("eventfd", errno);
  }
  [[nodiscard]] int stop_fd() const { return stop_.get(); }
  void stop() {
    const std::lock_guard lock(mutex_);
    // Fails only when the counter is at its limit, and then the thread has been told already.
    if (stop_.valid()) (void)::eventfd_write(stop_.get(), 1);
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      stop_.reset();
    }
    ended_ = true;
  }
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  std::mutex mutex_;
  UniqueFd stop_;  // closed under mutex_
  std::atomic<bool> ended_{false};
};

// Of all that follows. Never destroyed, made when the library is loaded.
ForkMutex& mutex = *new ForkMutex;

class LastingThreads {
 public:
  // For good: threads of the application may still call while the process exits.
  void end() {
    ended_ = true;
    for (Entry& entry : entries_) {
      if (entry.owner != ::getpid()) {
        entry.thread.forget();
        continue;
      }
      entry.control->stop();
      entry.thread.join();
    }
    entries_.clear();
  }

  Status start(std::function<void(int)> body) {
    if (ended_) return {Code::kSystemError, "this process is exiting"};
    entries_.remove_if([](const Entry& e) { return e.owner == ::getpid() && e.control->ended(); });
    auto control = std::make_shared<Control>();
    if (Status s = control->create(); !s.is_ok()) return s;
    Entry& entry = entries_.emplace_back();
    entry.control = control;
    entry.owner = ::getpid();
    Status started = entry.thread.start([control, body = std::move(body)] {
      // Whoever it served sees its connections close.
      if (Status s = guarded([&] { return body(control->stop_fd()), Status(); }); !s.is_ok()) {
        static_cast<void>(guarded([&] { return log::warn("a service ended: " + s.message()), Status(); }));
      }
      control->end();
    });
    if (!started.is_ok()) entries_.pop_back();
    return started;
  }

 private:
  struct Entry {
    std::shared_ptr<Control> control;
    ServiceThread thread;
    pid_t owner = 0;
  };
  std::list<Entry> entries_;
  bool ended_ = false;
};

LastingThreads& threads = *new LastingThreads;

struct AtExit {
  AtExit() = default;
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;
  ~AtExit() {
    const std::lock_guard lock(mutex);
    threads.end();
  }
};

}  // namespace

Status start_lasting_thread(std::function<void(int stop_fd)> body) {
  const std::lock_guard lock(mutex);
  // Registered later than what the threads are built on, and so called earlier.
  static const AtExit at_exit;
  return threads.start(std::move(body));
}

}  // namespace tutti
