// The loop of the monitor, with duties that fail.
#include "monitor/monitor.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/event_fd.h"
#include "catch_compat.h"
#include "os/clock.h"
#include "os/look_again.h"

namespace tutti::internal::test {
namespace {

enum class Fails { kNever, kInPrepare, kInAdvance };

// Ready all the time. Fails once.
class Counting final : public monitor::Duty {
 public:
  Counting(Fails fails, std::atomic<int>* rounds) : fails_(fails), rounds_(rounds) {}
  void prepare(net::PollSet* set) override {
    set->wake_at(Deadline::after_ms(1));
    fail_in(Fails::kInPrepare);
  }
  void advance(const net::PollSet& /*set*/) override {
    fail_in(Fails::kInAdvance);
    ++*rounds_;
  }

 private:
  void fail_in(Fails where) {
    if (fails_ != where) return;
    fails_ = Fails::kNever;
    throw std::bad_alloc();
  }

  Fails fails_;
  std::atomic<int>* rounds_;
};

// More descriptors than a process with a lower limit may wait for.
class Wide final : public monitor::Duty {
 public:
  explicit Wide(std::atomic<int>* rounds) : rounds_(rounds) {}
  void prepare(net::PollSet* set) override {
    set->wake_at(Deadline::after_ms(1));
    for (int i = 0; i < 100; ++i) set->add(pipe_.fd(), POLLIN);
  }
  void advance(const net::PollSet& /*set*/) override { ++*rounds_; }

 private:
  const EventFd pipe_ = std::move(*EventFd::create());
  std::atomic<int>* rounds_;
};

// The loop, until it is destroyed.
class Loop {
 public:
  explicit Loop(monitor::Duties duties)
      : duties_(std::move(duties)), thread_([this] { monitor::run_duties(duties_, stop_.fd()); }) {}
  ~Loop() {
    stop_.ring();
    thread_.join();
  }

 private:
  const EventFd stop_ = std::move(*EventFd::create());
  const monitor::Duties duties_;
  std::thread thread_;
};

bool grows(const std::atomic<int>& rounds) {
  const int before = rounds;
  const Deadline limit = Deadline::after_ms(100'000);
  for (LookAgain look; rounds < before + 3; look.pause()) {
    if (limit.passed()) return false;
  }
  return true;
}

TEST_CASE("monitor: a duty that fails once goes on later, and takes no other with it") {
  for (const Fails fails : {Fails::kInPrepare, Fails::kInAdvance}) {
    std::atomic<int> failing{0};
    std::atomic<int> other{0};
    monitor::Duties duties;
    duties.push_back(std::make_unique<Counting>(fails, &failing));
    duties.push_back(std::make_unique<Counting>(Fails::kNever, &other));
    const Loop loop(std::move(duties));
    CHECK(grows(other));
    CHECK(grows(failing));
  }
}

TEST_CASE("monitor: the loop outlives a limit on descriptors") {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  std::atomic<int> rounds{0};
  monitor::Duties duties;
  duties.push_back(std::make_unique<Wide>(&rounds));
  const Loop loop(std::move(duties));
  CHECK(grows(rounds));
  rlimit low = limit;
  low.rlim_cur = 50;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  // Until no round comes any more: the loop has seen the limit.
  const Deadline end = Deadline::after_ms(100'000);
  bool stands = false;
  while (!stands && !end.passed()) {
    const int before = rounds;
    ::usleep(200'000);
    stands = rounds == before;
  }
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(stands);
  CHECK(grows(rounds));
}

}  // namespace
}  // namespace tutti::internal::test
