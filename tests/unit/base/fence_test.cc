// The asymmetric fence, with the litmus test "store buffering": each side stores, and then loads what the other stores.
// Without fences both may miss the other's store, on every processor that tutti supports.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <new>
#include <thread>

#include "catch_compat.h"
#include "os/asymmetric_fence.h"
#include "os/clock.h"
#include "os/processor.h"

using namespace tutti::internal;

namespace {

constexpr std::uint32_t kRounds = 8192;
constexpr std::int64_t kLongestMs = 2000;  // a machine whose processors are busy does fewer rounds
constexpr std::int64_t kGoneMs = 60'000;

struct alignas(128) Word {
  std::atomic<std::uint32_t> value{0};
};

// While this lives, the calling thread stays on its side's processor, if it may use two.
class Pinned {
 public:
  explicit Pinned(int side) {
    ::sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int i = 0, seen = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &before_) && seen++ == side) CPU_SET(i, &one);
    }
    if (CPU_COUNT(&one) > 0) (void)::sched_setaffinity(0, sizeof one, &one);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() { (void)::sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_{};
};

// For both sides. Words are used once.
struct Litmus {
  enum Side : std::uint8_t { kLight, kHeavy };
  struct Round {
    std::array<Word, 2> stored;
    std::array<bool, 2> saw{};  // the other's
  };
  std::array<Word, 2> rounds_done;
  std::atomic<std::uint32_t> last{kRounds};
  std::array<Round, kRounds> rounds;

  bool meet(Side side, std::uint32_t round) {
    rounds_done[side].value.store(round + 1, std::memory_order_release);
    const Deadline gone = Deadline::after_ms(kGoneMs);
    for (int spins = 0; rounds_done[1 - side].value.load(std::memory_order_acquire) <= round; ++spins) {
      pause_processor();
      if (spins % 1024 != 1023) continue;
      if (gone.passed()) return false;
      ::sched_yield();
    }
    return round < last.load(std::memory_order_acquire);
  }
  void run(Side side) {
    const Pinned pinned(side);
    const Deadline enough = Deadline::after_ms(kLongestMs);
    for (std::uint32_t i = 0; i < kRounds; ++i) {
      // The other side knows this value when it reaches that round.
      if (side == kLight && enough.passed() && i + 1 < last.load(std::memory_order_relaxed)) last.store(i + 1);
      Round& round = rounds[i];
      // Puts the line of the load into the own cache, while the store has to wait for its line.
      (void)round.stored[1 - side].value.load(std::memory_order_relaxed);
      if (!meet(side, i)) return;
      round.stored[side].value.store(1, std::memory_order_release);
      side == kLight ? asymmetric_fence_light() : asymmetric_fence_heavy();
      round.saw[side] = round.stored[1 - side].value.load(std::memory_order_relaxed) != 0;
    }
  }
  void check() const {
    const std::uint32_t done = last.load();
    INFO("rounds: " << done);
    CHECK(rounds_done[kLight].value.load() >= done);
    CHECK(rounds_done[kHeavy].value.load() >= done);
    std::uint32_t missed = 0;
    for (std::uint32_t i = 0; i < done; ++i) missed += !rounds[i].saw[kLight] && !rounds[i].saw[kHeavy] ? 1 : 0;
    CHECK(missed == 0);
  }
};

class SharedLitmus {
 public:
  SharedLitmus() {
    void* const p = ::mmap(nullptr, sizeof(Litmus), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(p != MAP_FAILED);
    litmus_ = new (p) Litmus;
  }
  SharedLitmus(const SharedLitmus&) = delete;
  SharedLitmus& operator=(const SharedLitmus&) = delete;
  ~SharedLitmus() { ::munmap(litmus_, sizeof(Litmus)); }
  Litmus* operator->() const { return litmus_; }

 private:
  Litmus* litmus_;
};

}  // namespace

TEST_CASE("of two threads that store and then load, one by the light fence and one by the heavy, one sees the other") {
  const SharedLitmus litmus;
  std::thread light([&] { litmus->run(Litmus::kLight); });
  litmus->run(Litmus::kHeavy);
  light.join();
  litmus->check();
}

TEST_CASE("the same of two processes", "[fork]") {
  const SharedLitmus litmus;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    register_for_asymmetric_fence();
    litmus->run(Litmus::kLight);
    ::_exit(0);
  }
  litmus->run(Litmus::kHeavy);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  litmus->check();
}
