#include "communicator/lasting_thread.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <list>
#include <memory>
#include <mutex>

#include "base/log.h"
#include "base/unique_fd.h"
#include "communicator/service_thread.h"
#include "net/auth.h"

namespace tutti {
namespace {

struct Control {
  UniqueFd stop;
  std::atomic<bool> ended{false};
};

class LastingThreads {
 public:
  // libcrypto registers its clean-up when it is first used. It must run after ours, since a thread may be
  // computing with it: so it is used here first.
  LastingThreads() { static_cast<void>(net::hmac_sha256("", 0, "")); }
  LastingThreads(const LastingThreads&) = delete;
  LastingThreads& operator=(const LastingThreads&) = delete;
  ~LastingThreads() {
    for (Entry& entry : entries_) {
      if (entry.owner != ::getpid()) {
        entry.thread.detach();
        continue;
      }
      // Fails only when the counter is at its limit, and then the thread has been told already.
      (void)::eventfd_write(entry.control->stop.get(), 1);
      entry.thread.join();
    }
  }

  Status start(std::function<void(int)> body) {
    const std::lock_guard lock(mutex_);
    entries_.remove_if([](const Entry& e) { return e.owner == ::getpid() && e.control->ended.load(); });
    auto control = std::make_shared<Control>();
    control->stop = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!control->stop.valid()) return Status::system("eventfd", errno);
    Entry& entry = entries_.emplace_back();
    entry.control = control;
    entry.owner = ::getpid();
    Status started = entry.thread.start([control, body = std::move(body)] {
      // Whoever it served sees its connections close.
      if (Status s = guarded([&] { return body(control->stop.get()), Status(); }); !s.is_ok()) {
        static_cast<void>(guarded([&] { return log::warn("a service ended: " + s.message()), Status(); }));
      }
      control->ended = true;
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
  std::mutex mutex_;
  std::list<Entry> entries_;  // guarded by mutex_
};

}  // namespace

Status start_lasting_thread(std::function<void(int stop_fd)> body) {
  static LastingThreads threads;
  return threads.start(std::move(body));
}

}  // namespace tutti
