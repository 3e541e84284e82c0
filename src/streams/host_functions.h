// Functions of the program's in streams. They run in one thread of their own, made for the first of them, one at a time
// in the order in which what is before them in their streams is done: a function whose stream still waits holds up no
// other.
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

  // function(data) is called once, behind all that is in the stream, and what comes behind it waits for its end. An
  // exception is an error of the stream. If this fails it is not called. Any thread.
  Status launch(Stream& stream, Function function, void* data);
  // Whether the calling thread is in such a function. There it must wait for nothing that is queued, which may wait for
  // a function in turn.
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
  // Completes what is ready, by an error.
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
  bool over_ TUTTI_GUARDED_BY(mutex_) = false;          // the thread takes nothing more
  bool dropping_ TUTTI_GUARDED_BY(mutex_) = false;      // a thread is in drop_ready()
  unsigned forks_ TUTTI_GUARDED_BY(mutex_) = 0;         // of which this process has come
};

}  // namespace tutti::internal
