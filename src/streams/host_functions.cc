#include "streams/host_functions.h"

#include <cstdlib>
#include <new>
#include <utility>

#include "base/first_use.h"
#include "base/float_mode.h"
#include "os/clock.h"

namespace tutti::internal {
namespace {

// The time that process exit waits for the running function.
constexpr std::int64_t kExitMs = 1000;

thread_local bool in_function = false;

}  // namespace

class HostFunctions::Item final : public Continuation {
 public:
  Item(Function function, void* data) : function_(function), data_(data) {}
  [[nodiscard]] const std::shared_ptr<Completion>& completion() const { return completion_; }
  [[nodiscard]] Status call() const {
    const InFloatMode of_caller(mode_);
    in_function = true;
    Status status = guarded([&] { return function_(data_), Status(); });
    in_function = false;
    return status.with_context("host function");
  }
  void run(std::unique_ptr<Continuation> self) noexcept override {
    static_cast<void>(self.release());
    instance().add_ready(std::unique_ptr<Item>(this));
  }

 private:
  const Function function_;
  void* const data_;
  const FloatMode mode_ = FloatMode::current();  // of the thread that has launched it
  const std::shared_ptr<Completion> completion_ = std::make_shared<Completion>();
};

HostFunctions& HostFunctions::instance() {
  // Never destroyed: user code may launch functions during static destruction.
  static constinit FirstUse<HostFunctions, Surplus::kKept> only;
  return only.get([] { return HostFunctions(); });
}

// Not made at first use, because another thread may fork at that moment.
[[maybe_unused]] static const HostFunctions& made_at_load = HostFunctions::instance();

bool HostFunctions::runs_here() {
  return in_function;
}

Status HostFunctions::launch(Stream& stream, Function function, void* data) {
  auto item = std::make_unique<Item>(function, data);
  {
    const MutexLock lock(mutex_);
    if (ended_) return {Code::kSystemError, "this process is exiting"};
    if (!thread_.running()) {
      // Registered after the handlers of the thread's dependencies, and so called before them.
      if (!ends_at_exit_ && std::atexit([] { instance().end(); }) != 0) return Status::out_of_memory();
      ends_at_exit_ = true;
      if (Status s = thread_.start([this] { run(); }, kWorkStackBytes); !s.is_ok()) return s;
    }
  }
  std::shared_ptr<Completion> before = stream.append(item->completion());
  // From here on nothing can fail.
  if (before == nullptr) {
    add_ready(std::move(item));
  } else {
    Completion::then(*before, std::move(item));
  }
  return {};
}

void HostFunctions::add_ready(std::unique_ptr<Item> item) noexcept {
  const MutexLock lock(mutex_);
  Continuation* const newest = item.get();
  (ready_ == nullptr ? ready_ : newest_->next) = std::move(item);
  newest_ = newest;
  changed_.notify_all();
  // A loop in one thread: dropping a function makes the next one of its stream ready.
  if (ended_ && !dropping_) drop_ready();
}

std::unique_ptr<HostFunctions::Item> HostFunctions::take_ready() {
  std::unique_ptr<Item> item(static_cast<Item*>(ready_.release()));
  ready_ = std::move(item->next);
  return item;
}

void HostFunctions::run() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!ended_ && ready_ == nullptr) changed_.wait(mutex_);
    if (ended_) break;
    const std::unique_ptr<Item> item = take_ready();
    const unsigned forks = forks_;
    lock.unlock();
    Status result = item->call();
    lock.lock();
    // In a child that was forked in the function, this is not a thread of the library, and ends.
    if (forks != forks_) return;
    lock.unlock();
    item->completion()->complete(std::move(result));
    lock.lock();
  }
  over_ = true;
  changed_.notify_all();
}

// Threads that wait for these functions must not wait without end.
void HostFunctions::drop_ready() noexcept {
  dropping_ = true;
  while (ready_ != nullptr) {
    const std::unique_ptr<Item> item = take_ready();
    mutex_.unlock();
    Status exits =
        guarded([] { return Status(Code::kSystemError, "host function: not run, this process is exiting"); });
    item->completion()->complete(std::move(exits));
    mutex_.lock();
  }
  dropping_ = false;
}

void HostFunctions::end() noexcept {
  const MutexLock lock(mutex_);
  ended_ = true;
  changed_.notify_all();
  if (!dropping_) drop_ready();
  // A function may call exit itself, or wait for something that this thread will no longer do.
  const Deadline deadline = Deadline::after_ms(kExitMs);
  while (thread_.running() && !over_ && !in_function && changed_.wait_until(mutex_, deadline)) {
  }
  // The thread will not take the lock again.
  over_ ? thread_.join() : thread_.forget();
}

// The launched functions belong to the parent.
void HostFunctions::after_fork_in_child() {
  in_function = false;
  static_cast<void>(ready_.release());
  thread_.forget();
  over_ = dropping_ = false;
  ++forks_;
  new (&changed_) ConditionVariable;  // threads that are not here may have waited
  mutex_.unlock();                    // which this thread has locked
}

}  // namespace tutti::internal
