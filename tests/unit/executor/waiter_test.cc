// When a rank yields its processor instead of spinning, and when it sleeps instead of yielding: waiters that share a
// processor, and yields that take as long as beside a program that does not yield.
#include "executor/waiter.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "catch_compat.h"
#include "executor/turn_taking.h"
#include "transport/plain.h"

namespace {

// In a thread that sets this, yields are counted, and each takes this long.
thread_local std::int64_t yield_ns = 0;
thread_local int yields = 0;
// In a thread that sets this, only yields let time pass.
thread_local std::int64_t still_ns = 0;
// A thread's real yields: those that took as long as another rank's turn, those that took longer, all of them.
struct Turns {
  int turns = 0;
  int slices = 0;
  int yields = 0;
};
thread_local Turns turns_seen;

int yield_and_note() {
  using tutti::internal::executor::TurnTaking;
  const std::int64_t begin = tutti::internal::now_ns();
  const auto result = static_cast<int>(::syscall(SYS_sched_yield));
  const std::int64_t took = tutti::internal::now_ns() - begin;
  ++turns_seen.yields;
  turns_seen.slices += took > TurnTaking::kTurnNs;
  turns_seen.turns += took >= TurnTaking::kAloneNs && took <= TurnTaking::kTurnNs;
  return result;
}

}  // namespace

// Replace those of the C library.
extern "C" [[gnu::visibility("default")]] int sched_yield() noexcept {
  if (yield_ns == 0) return yield_and_note();
  ++yields;
  if (still_ns != 0) {
    still_ns += yield_ns;
    return 0;
  }
  const std::int64_t end = tutti::internal::now_ns() + yield_ns;
  while (tutti::internal::now_ns() < end) {
  }
  return 0;
}
extern "C" [[gnu::visibility("default")]] int clock_gettime(clockid_t clock, timespec* time) noexcept {
  // Not the system call, which takes as long as another rank's turn.
  static const auto real = reinterpret_cast<int (*)(clockid_t, timespec*)>(::dlsym(RTLD_NEXT, "clock_gettime"));
  if (still_ns == 0) return real(clock, time);
  *time = {still_ns / 1'000'000'000, still_ns % 1'000'000'000};
  return 0;
}

namespace tutti::internal::executor {
namespace {

constexpr std::int64_t kAlone = TurnTaking::kAloneNs / 3;
constexpr std::int64_t kTurn = 20'000;
constexpr std::int64_t kTimeSlice = 3'000'000;

class NothingComes final : public Waiting {
 public:
  void list(std::vector<For>*) const override {}
  void list_sends(std::vector<For>*) const override {}
};

// One wait of a rank that ends soon after its first yields. If the rank sleeps instead, it is woken at once.
void wait_once(Waiter& waiter, const Waiting& waiting, const transport::WakeupFd& wakeup_fd) {
  waiter.begin(waiting);
  for (int i = 0; i < 520; ++i) {
    if (i >= 500) EventFd::ring(wakeup_fd.fd());
    (void)waiter.idle();
  }
}

std::unique_ptr<Waiter> make_waiter(const transport::WakeupFd& wakeup_fd, const FailureState& failure,
                                    bool oversubscribed = false) {
  return std::make_unique<Waiter>(wakeup_fd, failure, oversubscribed, 60'000);
}

// Every sleep begins with this.
class CountsSleeps final : public StallWatch {
 public:
  Status stalled(std::int64_t, std::int64_t, const Awaited*) override {
    ++sleeps;
    return {};
  }
  void held_up(std::span<const Held>, std::int64_t) override {}
  std::string missing() override { return ""; }
  int sleeps = 0;
};

// The yields until the first sleep, and those of about a hundred later waits, each of which ends with its first sleep.
void check_few_yields(bool oversubscribed, std::int64_t slice_ns) {
  const auto wakeup_fd = transport::WakeupFd::create();
  REQUIRE(wakeup_fd.is_ok());
  const FailureState failure;
  const NothingComes waiting;
  CountsSleeps watch;
  const auto waiter = make_waiter(wakeup_fd.value(), failure, oversubscribed);
  waiter->watch_stalls(&watch);
  yield_ns = slice_ns;
  yields = 0;
  waiter->begin(waiting);
  const auto wait = [&] {
    const int before = watch.sleeps;
    bool had_time = false;
    while (watch.sleeps == before) {
      had_time = waiter->waits_long();
      REQUIRE(waiter->idle().is_ok());
    }
    // To wait differently before it slept.
    CHECK(had_time);
  };
  wait();
  CHECK(yields <= 2);
  yields = 0;
  constexpr int kWaits = 100;
  for (int i = 0; i < kWaits; ++i) {
    waiter->progress();
    EventFd::ring(wakeup_fd.value().fd());  // so that a sleep takes no time
    wait();
  }
  yield_ns = 0;
  CHECK(yields <= kWaits / 10);
}

TEST_CASE("a thread that drives an operation does not sleep before it counts as stalled") {
  const auto wakeup_fd = transport::WakeupFd::create();
  REQUIRE(wakeup_fd.is_ok());
  const FailureState failure;
  const auto waiter = make_waiter(wakeup_fd.value(), failure);
  const auto set = transport::EventSet::create();
  REQUIRE(set.is_ok());
  const NothingComes nothing;
  waiter->begin(nothing);
  for (int i = 0; i < 3; ++i) REQUIRE(waiter->look(now_ns()).is_ok());
  CHECK_FALSE(waiter->stalled());
  CHECK_FALSE(waiter->arm(set.value()));
  REQUIRE(waiter->look(now_ns()).is_ok());
  CHECK(waiter->stalled());
  CHECK_FALSE(waiter->arm(set.value()));  // a lane may show more at the next look
  for (int i = 0; i < 8; ++i) REQUIRE(waiter->look(now_ns()).is_ok());
  CHECK(waiter->arm(set.value()));
  waiter->progress();
  CHECK_FALSE(waiter->arm(set.value()));
}

// A rank that runs steps in order then looks at other lanes, for which a peer may wait.
TEST_CASE("a rank has had time to wait differently before it sleeps, however long its yields take") {
  const auto wakeup_fd = transport::WakeupFd::create();
  REQUIRE(wakeup_fd.is_ok());
  const FailureState failure;
  const NothingComes waiting;
  for (const bool oversubscribed : {false, true}) {
    for (const std::int64_t turn_ns : {1'000, 60'000, 200'000, 600'000}) {
      CountsSleeps watch;
      const auto waiter = make_waiter(wakeup_fd.value(), failure, oversubscribed);
      waiter->watch_stalls(&watch);
      waiter->begin(waiting, std::size_t{1} << 20);
      EventFd::ring(wakeup_fd.value().fd());  // so that a sleep takes no time
      yield_ns = turn_ns;
      bool had_time = false;
      while (watch.sleeps == 0) {
        had_time = waiter->waits_long();
        REQUIRE(waiter->idle().is_ok());
      }
      yield_ns = 0;
      INFO("yields of " << turn_ns << " ns");
      CHECK(had_time);
    }
  }
}

TEST_CASE("a rank beside a program that does not yield sleeps instead of yielding") {
  check_few_yields(false, 2 * TurnTaking::kTurnNs);
  check_few_yields(true, 3'000'000);
}

TEST_CASE(
    "in an oversubscribed communicator long turns with long messages do not count as a program that does not yield") {
  const auto wakeup_fd = transport::WakeupFd::create();
  REQUIRE(wakeup_fd.is_ok());
  const FailureState failure;
  const NothingComes waiting;
  for (const std::size_t step_bytes : {std::size_t{8}, std::size_t{1} << 20}) {
    CountsSleeps watch;
    const auto waiter = make_waiter(wakeup_fd.value(), failure, true);
    waiter->watch_stalls(&watch);
    waiter->begin(waiting, step_bytes);
    yield_ns = kTimeSlice;
    for (int i = 0; i < 50; ++i) {
      EventFd::ring(wakeup_fd.value().fd());  // so that a sleep takes no time
      waiter->progress();
      for (int look = 0; look < 2; ++look) REQUIRE(waiter->idle().is_ok());
    }
    yield_ns = 0;
    CHECK((watch.sleeps > 0) == (step_bytes == 8));
  }
}

TEST_CASE("in an oversubscribed communicator the other ranks' turns do not count as a program that does not yield") {
  const auto wakeup_fd = transport::WakeupFd::create();
  REQUIRE(wakeup_fd.is_ok());
  const FailureState failure;
  const NothingComes waiting;
  bool slept = true;
  // Other threads may take this processor during a yield, but not during each.
  for (int attempt = 0; attempt < 1000 && slept; ++attempt) {
    CountsSleeps watch;
    const auto waiter = make_waiter(wakeup_fd.value(), failure, true);
    waiter->watch_stalls(&watch);
    waiter->begin(waiting);
    yield_ns = kTurn;
    for (int i = 0; i < 50; ++i) {
      waiter->progress();
      for (int look = 0; look < 2; ++look) REQUIRE(waiter->idle().is_ok());
    }
    yield_ns = 0;
    slept = watch.sleeps > 0;
  }
  CHECK_FALSE(slept);
}

TEST_CASE("a rank that sleeps beside a program that does not yield spins for long before, unless that is useless") {
  constexpr int kLong = 2000;  // looks
  const auto wakeup_fd = transport::WakeupFd::create();
  REQUIRE(wakeup_fd.is_ok());
  const FailureState failure;
  const NothingComes waiting;
  CountsSleeps watch;
  const auto waiter = make_waiter(wakeup_fd.value(), failure);
  waiter->watch_stalls(&watch);
  const auto looks_before_sleep = [&] {
    EventFd::ring(wakeup_fd.value().fd());  // so that a sleep takes no time
    waiter->begin(waiting);
    int looks = 0;
    for (watch.sleeps = 0; watch.sleeps == 0; ++looks) REQUIRE(waiter->idle().is_ok());
    return looks;
  };
  // The meaning of "soon after a sleep" must not depend on the speed of this machine.
  still_ns = now_ns();
  yield_ns = 2 * TurnTaking::kTurnNs;
  (void)looks_before_sleep();
  yield_ns = 0;
  CHECK(looks_before_sleep() > kLong);
  int shortest = kLong;
  for (int i = 0; i < TurnTaking::kSleepsPerSlice / 2; ++i) shortest = std::min(shortest, looks_before_sleep());
  still_ns = 0;
  CHECK(shortest < kLong);
}

// A link to a rank that has left, on which nothing can be received at present.
class Left final : public transport::PlainLink {
 public:
  transport::SendLane& send() override { return send_; }
  transport::RecvLane& recv() override { return recv_; }
  bool arm() override { return quiet; }
  void disarm() override {}
  [[nodiscard]] std::span<const int> wait_fds() const override { return {}; }
  bool quiet = false;  // no data is in flight

 private:
  struct Send final : transport::PlainSendLane {
    std::size_t push(const transport::Fingerprint&, const transport::Source&, std::size_t, std::size_t) override {
      return 0;
    }
    std::span<std::byte> reserve(std::size_t) override { return {}; }
    void commit(const transport::Fingerprint&, std::size_t) override {}
    std::uint64_t completed() override { return 0; }
    Status status() override { return {}; }
  };
  struct Recv final : transport::PlainRecvLane {
    View peek(std::size_t) override { return {}; }
    bool consume(std::size_t) override { return true; }
    std::size_t pull(std::byte*, std::size_t, transport::Fingerprint*) override { return 0; }
    Status status() override { return {}; }
  };
  Send send_;
  Recv recv_;
};

class WaitsFor final : public Waiting {
 public:
  explicit WaitsFor(transport::Link& link) : link_(link) {}
  void list(std::vector<For>* lanes) const override { lanes->push_back({&link_, 1, false, true}); }
  void list_sends(std::vector<For>*) const override {}

 private:
  transport::Link& link_;
};

Status wait_for_ms(Waiter& waiter, std::int64_t ms) {
  const std::int64_t end = now_ns() + ms * 1'000'000;
  Status status;
  while (status.is_ok() && now_ns() < end) status = waiter.idle();
  return status;
}

TEST_CASE("data that a rank sent before it left is waited for while it is in flight") {
  const auto wakeup_fd = transport::WakeupFd::create();
  REQUIRE(wakeup_fd.is_ok());
  FailureState failure;
  failure.set_departed({1, 5});
  Left link;
  const WaitsFor waiting(link);
  const auto waiter = make_waiter(wakeup_fd.value(), failure, false);
  waiter->begin(waiting, 8, 3);
  CHECK(wait_for_ms(*waiter, 800).is_ok());
  link.quiet = true;
  const Status status = wait_for_ms(*waiter, 20'000);
  CHECK(status.code() == Code::kRemoteError);
  CHECK(status.message().find("rank 1 has left") != std::string::npos);
}

// How many of 50 waits of an oversubscribed rank that was moved to `elsewhere` ended on `place`.
int waits_ended_at(int place, int elsewhere, int preferred, std::size_t step_bytes = 8) {
  const auto wakeup_fd = transport::WakeupFd::create();
  REQUIRE(wakeup_fd.is_ok());
  const FailureState failure;
  const NothingComes waiting;
  const Affinity affinity(Moves::kAll);
  const auto waiter = std::make_unique<Waiter>(wakeup_fd.value(), failure, true, 60'000, Moves::kAll,
                                               PreferredProcessor{preferred, 512 * 1024});
  int there = 0;
  yield_ns = kAlone;
  for (int i = 0; i < 50; ++i) {
    REQUIRE(affinity.move_to(elsewhere));
    // It may have moved just before.
    const std::int64_t end = now_ns() + 2 * Waiter::kPreferredIntervalNs;
    while (now_ns() < end) {
    }
    waiter->begin(waiting, step_bytes);
    REQUIRE(waiter->idle().is_ok());
    there += ::sched_getcpu() == place;
  }
  yield_ns = 0;
  return there;
}

TEST_CASE("an oversubscribed rank returns to its preferred processor") {
  std::thread([] {
    cpu_set_t allowed;
    REQUIRE(::sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    int first = -1;
    int last = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(static_cast<unsigned>(cpu), &allowed)) continue;
      if (first < 0) first = cpu;
      last = cpu;
    }
    if (first == last) return;  // there is no other processor
    // The scheduler moves it now and then.
    CHECK(waits_ended_at(first, last, first) >= 40);
    CHECK(waits_ended_at(last, first, last) >= 40);
    CHECK(waits_ended_at(first, last, -1) <= 40);
    CHECK(waits_ended_at(first, last, first, std::size_t{1} << 20) <= 40);
  }).join();
}

TEST_CASE("ranks of several communicators that share a processor yield, and one that is left spins") {
  cpu_set_t allowed;
  REQUIRE(::sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  cpu_set_t one = allowed;
  for (unsigned cpu = 0; CPU_COUNT(&one) > 1; ++cpu) CPU_CLR(cpu, &one);
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);

  const auto made = transport::WakeupFd::create();
  REQUIRE(made.is_ok());
  const transport::WakeupFd& wakeup_fd = made.value();
  const FailureState failure;
  const NothingComes waiting;
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      const auto made_own = transport::WakeupFd::create();
      const transport::WakeupFd& own = made_own.value();
      const auto waiter = make_waiter(own, failure);
      while (!stop) wait_once(*waiter, waiting, own);
    });
  }
  const auto waiter = make_waiter(wakeup_fd, failure);
  CHECK_FALSE(waiter->takes_turns());
  // Other programs may use this processor too: the rank must detect sharing only if most yields are turns of the ranks
  // above, and a yield that took a time slice lets some waits sleep.
  bool noticed = false, could = false;
  const Deadline deadline = Deadline::after_ms(10'000);
  while (!noticed && !deadline.passed()) {
    turns_seen = {};
    for (int i = 0; i < 2 * TurnTaking::kSleepsPerSlice && !noticed; ++i) {
      wait_once(*waiter, waiting, wakeup_fd);
      noticed = waiter->takes_turns();
    }
    const Turns& seen = turns_seen;
    could = could || (seen.yields > 1000 && seen.slices == 0 && seen.turns > seen.yields / 10 * 9);
  }
  stop = true;
  for (std::thread& t : others) t.join();
  bool alone = !waiter->takes_turns();
  const Deadline until = Deadline::after_ms(30'000);
  while (!alone && !until.passed()) {
    wait_once(*waiter, waiting, wakeup_fd);
    alone = !waiter->takes_turns();
  }
  REQUIRE(::sched_setaffinity(0, sizeof allowed, &allowed) == 0);
  CHECK(alone);
  if (!noticed && !could) WARN("programs that do not yield use this processor all the time");
  CHECK((noticed || !could));
}

}  // namespace
}  // namespace tutti::internal::executor
