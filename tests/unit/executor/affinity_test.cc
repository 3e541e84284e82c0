// Moves to another processor: only if the thread is not pinned, and without visible effect otherwise.
#include "executor/affinity.h"

#include <chrono>
#include <thread>

#include "catch_compat.h"

namespace tutti::internal::executor {
namespace {

cpu_set_t allowed() {
  cpu_set_t set;
  REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
  return set;
}

cpu_set_t only(unsigned cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return set;
}

unsigned some_of(const cpu_set_t& set) {
  unsigned cpu = 0;
  while (!CPU_ISSET(cpu, &set)) ++cpu;
  return cpu;
}

bool leaves_all_as_it_was(const Affinity& affinity) {
  const cpu_set_t before = allowed();
  const bool moved = affinity.leave_processor();
  const cpu_set_t after = allowed();
  CHECK(CPU_EQUAL(&before, &after));
  return moved;
}

}  // namespace

TEST_CASE("a thread moves and may use the same processors afterwards") {
  // In a separate thread, whose affinity affects no other test. With one processor there is no other to move to.
  std::thread([] {
    const cpu_set_t all = allowed();
    const Affinity affinity(Moves::kAll);
    for (int i = 0; i < 20; ++i) CHECK(leaves_all_as_it_was(affinity) == (CPU_COUNT(&all) > 1));
  }).join();
}

TEST_CASE("a thread moves to the given processor") {
  std::thread([] {
    const cpu_set_t all = allowed();
    const Affinity affinity(Moves::kAll);
    int there = 0;
    int moves = 0;
    while (CPU_COUNT(&all) > 1 && moves < 100) {
      for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &all)) continue;
        CHECK(affinity.move_to(static_cast<int>(cpu)));
        there += ::sched_getcpu() == static_cast<int>(cpu);
        ++moves;
        const cpu_set_t after = allowed();
        CHECK(CPU_EQUAL(&all, &after));
      }
    }
    // The scheduler may move it again before it checks.
    CHECK(there >= moves * 9 / 10);
    CHECK_FALSE(affinity.move_to(-1));
    CHECK_FALSE(affinity.move_to(CPU_SETSIZE));
    CHECK_FALSE(Affinity(Moves::kOwn).move_to(static_cast<int>(some_of(all))));
  }).join();
}

TEST_CASE("a thread without a request to move keeps its processors") {
  for (const Moves moves : {Moves::kNone, Moves::kOwn, Settings().moves}) {
    std::thread([moves] { CHECK(!leaves_all_as_it_was(Affinity(moves))); }).join();
  }
}

TEST_CASE("a thread that has asked for moves at the start is moved only while its communicator is new") {
  std::thread([] {
    const Affinity affinity(Moves::kStart);
    leaves_all_as_it_was(affinity);
    std::this_thread::sleep_for(std::chrono::nanoseconds(Affinity::kSettleNs));
    CHECK(!leaves_all_as_it_was(affinity));
    const cpu_set_t all = allowed();
    CHECK(!affinity.move_to(static_cast<int>(some_of(all))));
  }).join();
}

TEST_CASE("a thread that the application has pinned stays") {
  std::thread([] {
    const Affinity made_before(Moves::kAll);
    const cpu_set_t all = allowed();
    const cpu_set_t one = only(some_of(all));
    REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(!leaves_all_as_it_was(made_before));
    CHECK(!made_before.move_to(static_cast<int>(some_of(all))));
    const cpu_set_t after = allowed();
    CHECK(CPU_EQUAL(&one, &after));
    // The same for a thread that was pinned before: it has no other processor.
    CHECK(!leaves_all_as_it_was(Affinity(Moves::kAll)));
    // A larger set of processors than before is also the application's choice.
    const Affinity made_pinned(Moves::kAll);
    REQUIRE(::sched_setaffinity(0, sizeof all, &all) == 0);
    CHECK(!leaves_all_as_it_was(made_pinned));
  }).join();
}

}  // namespace tutti::internal::executor
