// Whether a rank takes turns on its processor with others that wait as it does, told from how long its yields take.
//
// A rank that spins where others wait for the processor keeps from them the time that they need to get on, perhaps
// with what it waits for. How many ranks share the processors is known within a communicator only: a job may have
// several, there may be several jobs, and affinities change. But a yield that returns at once says that nobody else
// wants the processor; one that takes as long as a rank needs for its turn says that another rank had it. One that
// takes a time slice says that a program runs there which does not yield: spinning keeps a share of the processor,
// yielding would give that program all of it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tutti::internal::executor {

class TurnTaking {
 public:
  enum class Advice { kStay, kLeaveProcessor };
  static constexpr std::int64_t kAloneNs = 1'000;
  static constexpr std::int64_t kTurnNs = 500'000;
  // A yield that took longer went to a program that does not yield: each costs one of its time slices, milliseconds,
  // whereas who sleeps gets the processor back as soon as he is woken. So many of the next waits sleep instead.
  static constexpr int kSleepsPerSlice = 128;
  // So many more yields of the one kind than of the other are believed.
  static constexpr int kYields = 16;
  // Two ranks may find themselves on one processor although each could have its own: the scheduler moves one at its
  // next tick, which is thousands of operations later. So a rank goes to another processor by itself first. And not
  // again soon: all processors may have others on them.
  static constexpr std::int64_t kLeaveIntervalNs = 100'000'000;
  // After so long it tries to do without, in case that others have gone and the scheduler has not noticed.
  static constexpr std::int64_t kTrialIntervalNs = 1'000'000'000;

  // `switches`: how often the calling thread has lost or given its processor since it began. Where a yield takes
  // long by itself, they tell that nobody had a turn.
  explicit TurnTaking(std::int64_t (*switches)()) : switches_(switches) {}

  // After each yield: how long it took and when it ended.
  Advice note(std::int64_t took_ns, std::int64_t now_ns) {
    const bool given = took_ns >= kAloneNs;
    count(given, &given_);
    count(given, &turns_);
    // Each yield beside a program that does not yield costs a time slice, so one is enough to stop.
    if (took_ns > kTurnNs) turns_ = 0;
    if (taking_turns_) {
      if (turns_ > 0 && now_ns - since_ns_ < kTrialIntervalNs) return Advice::kStay;
      taking_turns_ = false;
      given_ = turns_ = 0;
      left_ns_ = now_ns - kLeaveIntervalNs;
    }
    if (given_ < kYields) return Advice::kStay;
    if (leaves(now_ns)) {
      given_ = turns_ = 0;
      switches_before_ = switches_();
      return Advice::kLeaveProcessor;
    }
    if (turns_ == kYields && switches_() - switches_before_ >= kYields / 2) {
      taking_turns_ = true;
      since_ns_ = now_ns;
    }
    return Advice::kStay;
  }

  [[nodiscard]] bool taking_turns() const { return taking_turns_; }
  // Whether to follow the advice of VainSpins to leave the processor. If so, the rank has left it.
  [[nodiscard]] bool leaves(std::int64_t now_ns) {
    if (now_ns - left_ns_ < kLeaveIntervalNs) return false;
    left_ns_ = now_ns;
    return true;
  }

 private:
  static void count(bool yes, int* n) {
    if (yes && *n < kYields) ++*n;
    if (!yes && *n > 0) --*n;
  }

  std::int64_t (*switches_)();
  int given_ = 0;  // yields that took longer than alone, less the others
  int turns_ = 0;  // the same since the last one that was a time slice
  bool taking_turns_ = false;
  std::int64_t since_ns_ = 0;
  std::int64_t left_ns_ = 0;
  std::int64_t switches_before_ = 0;
};

// How long a rank spins before it sleeps beside a program that does not yield. While its peer has a processor too, long
// spins pay: both go on without a sleep. Where that program leaves the two one processor, each spin keeps the peer from
// it, and uses up the share of the processor that the two have: all-reduce of 8 bytes took 200 to 500 us so, and 30 to
// 130 without. There a rank finds nothing soon after it has slept. So with each such spin in vain more of the next ones
// are short, and if those are in vain as well, most of the next waits sleep at once. A peer that comes half a
// millisecond late each time looks the same: then some waits sleep that need not.
//
// Threads: of the one that waits.
class VainSpins {
 public:
  // Longer than a long spin and a few messages, shorter than the time slice for which a peer loses its processor.
  static constexpr std::int64_t kSoonNs = 1'000'000;
  // More than ranks on one processor do between two sleeps: a rank that only sends goes ahead as far as lanes take.
  static constexpr std::uint32_t kFewOperations = 64;
  // Between two long spins, which take 300 us each: then they take about 1 us of each wait.
  static constexpr int kMostBetween = 255;
  // If there are so many short ones in between, they take as long as a long one: of more, one in so many is short.
  static constexpr int kMostShort = 15;
  enum class Spin : std::uint8_t { kOnce, kShort, kLong };

  [[nodiscard]] Spin next() const {
    if (left_ == 0) return Spin::kLong;
    return between_ <= kMostShort || left_ % (kMostShort + 1) == 0 ? Spin::kShort : Spin::kOnce;
  }
  // Before each sleep to come, after the spin: nothing has come. `operation`: the number of the one that waits, modulo
  // 2^32; sends and receives count, too. kLeaveProcessor: the peer seems to share it.
  TurnTaking::Advice note(std::int64_t now_ns, std::uint32_t operation) {
    if (now_ns - woke_ns_ > kSoonNs || operation - woke_in_ > kFewOperations) {
      between_ = left_ = 0;  // it has got on meanwhile
    } else if (left_ > 0) {
      --left_;
    } else {
      const bool were_few = between_ <= kMostShort;
      left_ = between_ = std::min(2 * between_ + 1, kMostBetween);
      if (were_few && between_ > kMostShort) return TurnTaking::Advice::kLeaveProcessor;
    }
    return TurnTaking::Advice::kStay;
  }
  // After it.
  void woke(std::int64_t now_ns, std::uint32_t operation) {
    woke_ns_ = now_ns;
    woke_in_ = operation;
  }

 private:
  std::int64_t woke_ns_ = 0;
  std::uint32_t woke_in_ = 0;
  int between_ = 0;  // waits that follow a long spin in vain, before the next one
  int left_ = 0;     // of these
};

// Which waits of a thread are to sleep where others yield: beside a program that does not yield, each yield that is
// tried costs a time slice. So each such trial doubles how long the next one is off, and each that costs none halves
// it.
//
// Threads: of the one that waits.
class YieldTrials {
 public:
  // A wait that sleeps takes some 5 us: a trial then costs as much as a tenth of them.
  static constexpr int kMost = 64 * TurnTaking::kSleepsPerSlice;
  // Whether the next wait is to sleep.
  [[nodiscard]] bool pending() const { return left_ > 0; }
  // Of each wait that might yield.
  bool sleeps() {
    if (left_ == 0) return false;
    --left_;
    return true;
  }
  // After a yield, or all those of a wait: how long the longest took.
  void note(std::int64_t longest_ns) {
    if (longest_ns <= TurnTaking::kTurnNs) {
      next_ = std::max(next_ / 2, TurnTaking::kSleepsPerSlice);
      return;
    }
    left_ = next_;
    next_ = std::min(2 * next_, kMost);
  }

 private:
  int left_ = 0;
  int next_ = TurnTaking::kSleepsPerSlice;
};

}  // namespace tutti::internal::executor
