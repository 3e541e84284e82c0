// The simulated world itself: properties that tests rely on.
#include <algorithm>
#include <limits>

#include "catch_compat.h"
#include "os/clock.h"
#include "os/look_again.h"
#include "os/mutex.h"
#include "sim/world/job.h"

using namespace tutti::internal;
using namespace tutti::internal::sim;

namespace {

WorldOptions with_seed(std::uint64_t seed) {
  WorldOptions options;
  options.seed = seed;
  return options;
}

}  // namespace

TEST_CASE("world: ranks join, gather and leave") {
  const int ranks = GENERATE(1, 2, 5, 21, 64, 256);
  JobWorld job(ranks, with_seed(7));
  const bool done = job.run(60'000);
  INFO(job.report());
  CHECK(done);
  for (int rank = 0; rank < ranks; ++rank) {
    CHECK(job.rank(rank).error().is_ok());
    CHECK(job.rank(rank).all_left);
  }
  CHECK(job.world().finish());
}

TEST_CASE("world: a seed is one run, and another seed another one") {
  const auto trace_of = [](std::uint64_t seed) {
    JobWorld job(9, with_seed(seed));
    REQUIRE(job.run(60'000));
    return std::make_pair(job.world().trace(), job.world().traffic().bytes);
  };
  const auto first = trace_of(3);
  CHECK(trace_of(4).first != first.first);
  CHECK(trace_of(3) == first);
}

TEST_CASE("world: virtual minutes take no time") {
  World world(with_seed(1));
  std::int64_t slept_ms = 0;
  bool timed_out = false;
  world.start("sleeper", [&] {
    const std::int64_t begin_ns = now_ns();
    Mutex mutex;
    ConditionVariable never;
    const MutexLock lock(mutex);
    timed_out = !never.wait_until(mutex, Deadline::after_ms(30 * 60 * 1000));
    slept_ms = (now_ns() - begin_ns) / 1'000'000;
  });
  world.run_for(31 * 60 * 1000);
  CHECK(timed_out);
  CHECK(slept_ms == 30 * 60 * 1000);
  CHECK(world.finish());
}

TEST_CASE("world: an endless wait is found and reported") {
  World world(with_seed(1));
  Mutex mutex;
  ConditionVariable never;
  bool go_on = false;
  Process* const waiter = world.start("waiter", [&] {
    const MutexLock lock(mutex);
    while (!go_on) never.wait(mutex);
  });
  CHECK_FALSE(world.run_until([&] { return go_on; }, 1000));
  CHECK(world.report().find("waiter, thread") != std::string::npos);
  CHECK(world.report().find("a condition") != std::string::npos);
  CHECK_FALSE(waiter->dead);
  go_on = true;
  never.notify_all();
  CHECK(world.finish());
}

TEST_CASE("world: a thread that wants a lock gets it when the other one gives it up") {
  World world(with_seed(GENERATE(1, 2, 3, 4)));
  Mutex mutex;
  int inside = 0;
  int most = 0;
  for (int i = 0; i < 3; ++i) {
    world.start("process", [&] {
      for (int round = 0; round < 10; ++round) {
        const MutexLock lock(mutex);
        most = std::max(most, ++inside);
        LookAgain().pause();
        --inside;
      }
    });
  }
  world.run_for(1000);
  CHECK(most == 1);
  CHECK(world.finish());
}

TEST_CASE("world: a stopped process does nothing until it goes on") {
  World world(with_seed(1));
  int rounds = 0;
  Process* const process = world.start("process", [&] {
    for (; rounds < 100; ++rounds) LookAgain().pause();
  });
  world.run_for(20);
  const int before = rounds;
  CHECK(before > 0);
  world.stop(process);
  world.run_for(1000);
  CHECK(rounds == before);
  world.go_on(process);
  world.run_for(1000);
  CHECK(rounds == 100);
  CHECK(world.finish());
}
