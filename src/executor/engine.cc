#include "executor/engine.h"

#include <utility>

#include "base/first_use.h"
#include "os/fork.h"
#include "os/mutex.h"

namespace tutti::internal::executor {
namespace {

// The process's engine; it exists as long as a communicator keeps it.
class Engines final : public ForkAware {
 public:
  static Engines& instance() {
    // Never destroyed: the program may free communicators during static destruction.
    static constinit FirstUse<Engines, Surplus::kKept> only;
    return only.get([] { return Engines(); });
  }
  void before_fork() override TUTTI_ACQUIRE(mutex) { mutex.lock(); }
  void after_fork_in_parent() override TUTTI_RELEASE(mutex) { mutex.unlock(); }
  // The child does not have the thread, and does not use the parent's communicators.
  void after_fork_in_child() override TUTTI_RELEASE(mutex) {
    current.reset();
    mutex.unlock();
  }

  Mutex mutex;
  std::weak_ptr<Engine> current TUTTI_GUARDED_BY(mutex);

 private:
  Engines() { enlist(); }
};

// Created at load time, because at first use another thread might be forking.
[[maybe_unused]] const Engines& made_at_load = Engines::instance();

}  // namespace

Result<std::shared_ptr<Engine>> Engine::get(int threads, bool moves) {
  Engines& registry = Engines::instance();
  const MutexLock lock(registry.mutex);
  std::shared_ptr<Engine> engine = registry.current.lock();
  if (engine == nullptr) engine.reset(new Engine);
  if (Status s = engine->grow(threads, moves); !s.is_ok()) return s;
  registry.current = engine;
  return engine;
}

Status Engine::grow(int threads, bool moves) {
  for (int n = count_.load(std::memory_order_relaxed); n < threads; ++n) {
    auto made = std::make_unique<ProgressThread>();
    if (Status s = made->start(moves); !s.is_ok()) return n > 0 ? Status() : s;
    threads_[static_cast<std::size_t>(n)] = std::move(made);
    count_.store(n + 1, std::memory_order_release);
  }
  return {};
}

void Engine::wake_current() {
  std::shared_ptr<Engine> engine;
  {
    Engines& registry = Engines::instance();
    const MutexLock lock(registry.mutex);
    engine = registry.current.lock();
  }
  if (engine != nullptr) engine->wake();
}

void Engine::submit(Task* task) {
  ProgressThread* least = threads_.front().get();
  const int n = count_.load(std::memory_order_acquire);
  for (int i = 1; i < n; ++i) {
    ProgressThread* const one = threads_[static_cast<std::size_t>(i)].get();
    if (one->tasks() < least->tasks()) least = one;
  }
  least->submit(task);
}

// Wakes all threads, because any of them may have the task.
void Engine::wake() {
  const int n = count_.load(std::memory_order_acquire);
  for (int i = 0; i < n; ++i) threads_[static_cast<std::size_t>(i)]->wake();
}

}  // namespace tutti::internal::executor
