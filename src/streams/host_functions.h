// User-defined functions in streams. One thread, started for the first function, runs them one at a time, in the order
// in which their predecessors in their streams are done: a function whose stream still waits does not delay others.
#pragma once

#include <memory>

#include "base/service_thread.h"
#include "base/status.h"
#include "os/fork.h"
#include "os/mutex.h"
#include "streams/completion.h"
#include "streams/stream.h"

namespace tutti::internal {

class HostFunctions final : public ForkAware {
 public:
  using Function = void (*)(void* data);
  static HostFunctions& instance();

  // Calls function(data) once, after all earlier work of the stream; later work waits for its end. An exception is an
  // error of the stream. If launch() fails, the function is not called. Any thread.
  Status launch(Stream& stream, Function function, void* data);
  // Whether the calling thread runs such a function. There it must not wait for queued work, which may itself wait for
  // a function.
  [[nodiscard]] static bool runs_here();
  [[nodiscard]] static Status waits_here() {
    return Status::invalid_usage("a host function must not wait for what is queued");
  }

 private:
  class Item;

  HostFunctions() { enlist(); }
  void add_ready(std::unique_ptr<Item> item) noexcept TUTTI_EXCLUDES(mutex_);
  std::unique_ptr<Item> take_ready() TUTTI_REQUIRES(mutex_);
  void run() TUTTI_EXCLUDES(mutex_);
  // Completes the ready functions with an error.
  void drop_ready() noexcept TUTTI_REQUIRES(mutex_);
  void end() noexcept TUTTI_EXCLUDES(mutex_);
  void before_fork() override TUTTI_ACQUIRE(mutex_) { mutex_.lock(); }
  void after_fork_in_parent() override TUTTI_RELEASE(mutex_) { mutex_.unlock(); }
  void after_fork_in_child() override TUTTI_RELEASE(mutex_);

  Mutex mutex_;
  ConditionVariable changed_;
  ServiceThread thread_ TUTTI_GUARDED_BY(mutex_);
  // A list, in order.
  std::unique_ptr<Continuation> ready_ TUTTI_GUARDED_BY(mutex_);
  Continuation* newest_ TUTTI_GUARDED_BY(mutex_) = nullptr;
  bool ends_at_exit_ TUTTI_GUARDED_BY(mutex_) = false;  // end() will be called
  bool ended_ TUTTI_GUARDED_BY(mutex_) = false;         // the process exits
  bool over_ TUTTI_GUARDED_BY(mutex_) = false;          // the thread takes no more functions
  bool dropping_ TUTTI_GUARDED_BY(mutex_) = false;      // a thread is in drop_ready()
  unsigned forks_ TUTTI_GUARDED_BY(mutex_) = 0;         // number of forks between the first process and this one
};

}  // namespace tutti::internal
