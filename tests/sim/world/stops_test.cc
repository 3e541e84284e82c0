// A rank that is stopped, or cut off from the network, at each step of its life, and continues after less time than any
// timeout: no rank fails.
#include <string>

#include "catch_compat.h"
#include "sanitizers.h"
#include "sim/world/job.h"

using namespace tutti::internal;
using namespace tutti::internal::sim;
using tutti::internal::test::kAnySanitizer;

namespace {

constexpr std::int64_t kBoundMs = 70'000;
constexpr std::int64_t kWorkMs = 100;

enum class Fault : std::uint8_t { kStop, kCut };

// False if the victim has ended before that step.
bool hold_at(int ranks, int victim, std::uint64_t step, Fault fault, std::int64_t ms, std::uint64_t seed,
             std::string* wrong) {
  WorldOptions options;
  options.seed = seed;
  JobWorld job(ranks, options,
               [&](int rank, Job*) { static_cast<void>(job.rank(rank).failure->await(Deadline::after_ms(kWorkMs))); });
  World& world = job.world();
  Process* const held = job.rank(victim).process;
  bool was_held = false;
  World::at_step(held, step, [&] {
    was_held = true;
    fault == Fault::kStop ? world.stop(held) : world.cut_off(held);
    world.after_ms(ms, [&] { fault == Fault::kStop ? world.go_on(held) : world.reconnect(held); });
  });
  const bool done = job.run(kBoundMs);
  wrong->clear();
  if (!done) *wrong = "a rank waits without end";
  for (int rank = 0; rank < ranks; ++rank) {
    if (!job.rank(rank).error().is_ok()) *wrong = "a rank fails";
  }
  if (!wrong->empty()) *wrong += "\n" + job.report();
  if (!world.finish()) *wrong += "\na process without a network does not end\n" + world.report();
  return was_held;
}

void at_each_step(int ranks, Fault fault, std::int64_t ms) {
  constexpr int kMostFindings = 4;
  int findings = 0;
  std::string wrong;
  for (int victim = 0; victim < ranks; ++victim) {
    std::uint64_t step = 1;
    for (; hold_at(ranks, victim, step, fault, ms, 1, &wrong) && findings < kMostFindings; ++step) {
      if (wrong.empty()) continue;
      FAIL_CHECK("rank " << victim << " of " << ranks << " was held at step " << step << ": " << wrong);
      ++findings;
    }
    CHECK(step > 30);  // the victim has lived
  }
}

}  // namespace

TEST_CASE("stops: a rank that is stopped at any step, and goes on, is waited for") {
  const int ranks = GENERATE(2, 5, 6);
  if (kAnySanitizer && ranks > 2) return;
  at_each_step(ranks, Fault::kStop, 20'000);
}

TEST_CASE("stops: a rank that is cut off from the network at any step, and found again, is waited for") {
  const int ranks = GENERATE(2, 5, 6);
  if (kAnySanitizer && ranks > 2) return;
  at_each_step(ranks, Fault::kCut, 20'000);
}
