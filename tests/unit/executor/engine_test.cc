// The progress engine, with tasks of the test: which tasks it drives, what wakes the thread, when it ends.
#include "executor/engine.h"

#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "catch_compat.h"
#include "os/clock.h"
#include "sanitizers.h"
#include "transport/wakeup_fd.h"

namespace tutti::internal::executor {
namespace {

// Waits until `ready` returns true; ring() wakes it like a peer.
class Waits final : public Task {
 public:
  explicit Waits(std::function<bool()> ready) : ready_(std::move(ready)) {}

  Progress advance(std::int64_t) override {
    passes.fetch_add(1);
    return ready_() ? Progress::kDone : Progress::kIdle;
  }
  bool arm(const transport::EventSet&) override { return !ready_(); }
  void disarm() override {}
  [[nodiscard]] int wakeup_fd() const override { return wakeup_fd_.fd(); }
  [[nodiscard]] bool takes_turns() const override { return false; }
  bool release() override {
    if (again.exchange(false)) return true;
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
    return false;
  }

  void ring() const { EventFd::ring(wakeup_fd_.fd()); }
  void await_release() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return released_; });
    released_ = false;
  }
  std::atomic<int> passes{0};
  std::atomic<bool> again{false};

 private:
  std::function<bool()> ready_;
  transport::WakeupFd wakeup_fd_ = std::move(transport::WakeupFd::create().value());
  std::mutex mutex_;
  std::condition_variable changed_;
  bool released_ = false;
};

std::shared_ptr<Engine> engine() {
  return Engine::get(1, true).value();
}

int threads() {
  return std::stoi([] {
    char text[4096] = {};
    FILE* const file = std::fopen("/proc/self/status", "r");
    const std::size_t n = std::fread(text, 1, sizeof text - 1, file);
    std::fclose(file);
    const std::string all(text, n);
    return all.substr(all.find("Threads:") + 8);
  }());
}

// The kernel counts a thread for a moment after it was joined.
bool has_threads(int expected) {
  const Deadline deadline = Deadline::after_ms(5000);
  while (threads() != expected && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return threads() == expected;
}

TEST_CASE("one thread drives all tasks, and ends with the last owner of the engine") {
  std::thread([] {}).join();  // with the first thread, a sanitizer may start its own
  const int before = has_threads(1) ? 1 : 2;
  {
    const std::shared_ptr<Engine> first = engine();
    const std::shared_ptr<Engine> second = engine();
    CHECK(first == second);
    CHECK(has_threads(before + 1));
    std::atomic<int> turn{0};
    // Each can continue when the following one has continued: no fixed order would work.
    Waits a([&] { return turn >= 2; });
    Waits b([&] { return turn >= 1 && (turn = 2) == 2; });
    Waits c([&] { return (turn = std::max(turn.load(), 1)) >= 1; });
    first->submit(&a);
    first->submit(&b);
    second->submit(&c);
    for (Waits* each : {&a, &b, &c}) each->await_release();
    CHECK(turn == 2);
  }
  CHECK(has_threads(before));
}

TEST_CASE("tasks are distributed over the largest number of threads that was requested") {
  std::thread([] {}).join();
  const int before = has_threads(1) ? 1 : 2;
  {
    const std::shared_ptr<Engine> keeps = engine();
    const std::shared_ptr<Engine> same = Engine::get(3, true).value();
    CHECK(same == keeps);
    CHECK(Engine::get(2, true).value() == keeps);
    CHECK(has_threads(before + 3));
    // Each blocks its thread until the others have a thread.
    std::atomic<int> here{0};
    const auto meet = [&] {
      ++here;
      const Deadline deadline = Deadline::after_ms(20'000);
      while (here < 3 && !deadline.passed()) std::this_thread::yield();
      return true;
    };
    Waits a(meet);
    Waits b(meet);
    Waits c(meet);
    for (Waits* each : {&a, &b, &c}) keeps->submit(each);
    for (Waits* each : {&a, &b, &c}) each->await_release();
    CHECK(here == 3);
    for (Waits* each : {&a, &b, &c}) CHECK(each->passes == 1);
    // A wake-up reaches the thread that has the task.
    std::atomic<bool> ready{false};
    Waits late([&] { return ready.load(); });
    Waits later([&] { return ready.load(); });
    keeps->submit(&late);
    keeps->submit(&later);
    ::usleep(50'000);
    ready = true;
    Engine::wake_current();
    late.await_release();
    later.await_release();
  }
  CHECK(has_threads(before));
}

TEST_CASE("a task that has more to do when it is released goes on") {
  const std::shared_ptr<Engine> keeps = engine();
  Waits task([] { return true; });
  task.again = true;
  keeps->submit(&task);
  task.await_release();
  CHECK(task.passes >= 2);
}

TEST_CASE("the engine sleeps while nothing happens, and an event wakes it") {
  const std::shared_ptr<Engine> keeps = engine();
  std::atomic<bool> ready{false};
  Waits task([&] { return ready.load(); });
  keeps->submit(&task);
  // Long enough for the thread to fall asleep, even on a loaded machine.
  int passes = -1;
  for (int i = 0; i < 200 && passes != task.passes; ++i) {
    passes = task.passes;
    ::usleep(20'000);
  }
  INFO(task.passes << " passes");
  SECTION("a peer") {
    ready = true;
    task.ring();
  }
  SECTION("another thread") {
    ready = true;
    Engine::wake_current();
  }
  task.await_release();
}

TEST_CASE("no submission and no wake-up is lost") {
  const std::shared_ptr<Engine> keeps = engine();
  constexpr int kRounds = test::kThreadSanitizer ? 2000 : 20'000;
  constexpr int kThreads = 3;
  std::vector<std::thread> submitters;
  std::atomic<int> done{0};
  for (int t = 0; t < kThreads; ++t) {
    submitters.emplace_back([&, t] {
      std::atomic<bool> ready{false};
      Waits task([&] { return ready.load(); });
      for (int i = 0; i < kRounds; ++i) {
        ready = i % 3 == t;
        keeps->submit(&task);
        if (!ready) {
          for (int spin = i % 500; spin > 0; --spin) std::atomic_signal_fence(std::memory_order_seq_cst);
          ready = true;
          keeps->wake();
        }
        task.await_release();
      }
      ++done;
    });
  }
  for (std::thread& t : submitters) t.join();
  CHECK(done == kThreads);
}

TEST_CASE("the engine may use the processors of all threads, or, if requested, only those of its creator") {
  const bool moves = GENERATE(true, false);
  cpu_set_t usual;
  REQUIRE(::sched_getaffinity(0, sizeof usual, &usual) == 0);
  cpu_set_t seen;
  cpu_set_t one;
  CPU_ZERO(&seen);
  CPU_ZERO(&one);
  std::thread([&] {
    for (int p = 0; p < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++p) {
      if (CPU_ISSET(p, &usual)) CPU_SET(p, &one);
    }
    REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
    const std::shared_ptr<Engine> keeps = Engine::get(1, moves).value();
    Waits task([&] { return ::sched_getaffinity(0, sizeof seen, &seen) == 0; });
    keeps->submit(&task);
    task.await_release();
  }).join();
  CHECK(CPU_EQUAL(&seen, moves ? &usual : &one));
}

// Under ThreadSanitizer, a child of a process with threads cannot start a thread.
#ifndef __SANITIZE_THREAD__
TEST_CASE("a forked child has an engine of its own") {
  const std::shared_ptr<Engine> keeps = engine();
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(30);
    {
      const std::shared_ptr<Engine> own = engine();
      if (own == keeps) ::_exit(1);
      Waits task([] { return true; });
      own->submit(&task);
      task.await_release();
    }
    ::_exit(0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  Waits task([] { return true; });
  keeps->submit(&task);
  task.await_release();
}
#endif

}  // namespace
}  // namespace tutti::internal::executor
