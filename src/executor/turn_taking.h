// Detects from the duration of yields whether a rank shares its processor with other waiting ranks (is oversubscribed).
//
// If a rank spins while others wait for the processor, it takes processor time that they need for their progress, and
// it may be waiting for that progress. Only within a communicator is it known how many ranks share the processors: a
// job may have several communicators, there may be several jobs, and affinities change. A yield that returns at once
// shows that no other thread wants the processor; one that takes as long as a rank's turn shows that another rank had
// it. One that takes a time slice shows that a program runs there that does not yield: spinning keeps a share of the
// processor, yielding would give that program all of it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tutti::internal::executor {

class TurnTaking {
 public:
  enum class Advice { kStay, kLeaveProcessor };
  static constexpr std::int64_t kAloneNs = 1'000;
  static constexpr std::int64_t kTurnNs = 500'000;
  // A longer yield went to a program that does not yield. Each such yield costs one of its time slices, which are
  // milliseconds, but a sleeping thread gets the processor back as soon as it is woken. So this many of the next waits
  // sleep instead.
  static constexpr int kSleepsPerSlice = 128;
  // One kind of yield must exceed the other by this number.
  static constexpr int kYields = 16;
  // Two ranks may share one processor although each could have its own: the scheduler moves one at its next tick, which
  // is thousands of operations later. So a rank first tries to move to another processor itself. It repeats that only
  // after this interval, because all processors may have other ranks.
  static constexpr std::int64_t kLeaveIntervalNs = 100'000'000;
  // After this time it stops yielding first, in case the other ranks have gone and the scheduler has not noticed.
  static constexpr std::int64_t kTrialIntervalNs = 1'000'000'000;

  // `switches`: how often the calling thread has lost or yielded its processor since it began. If a yield is slow by
  // itself, this number shows that no other thread ran.
  explicit TurnTaking(std::int64_t (*switches)()) : switches_(switches) {}

  // Called after each yield: its duration and when it ended.
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
  // Whether to follow the advice of VainSpins to leave the processor. If so, the caller must leave it.
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
  int given_ = 0;  // yields longer than kAloneNs, minus the shorter ones
  int turns_ = 0;  // the same since the last yield that took a time slice
  bool taking_turns_ = false;
  std::int64_t since_ns_ = 0;
  std::int64_t left_ns_ = 0;
  std::int64_t switches_before_ = 0;
};

// How long a rank spins before it sleeps, beside a program that does not yield. If its peer has another processor, long
// spins pay off: both continue without a sleep. If that program leaves one processor to the two ranks, each spin delays
// the peer and uses up their share of the processor: all-reduce of 8 bytes took 200 to 500 us with such spins, and 30
// to 130 without. In that case nothing arrives soon after a rank has slept. So each such useless spin makes more of the
// next ones short, and if those are useless too, most of the next waits sleep at once. A peer that comes half a
// millisecond late each time looks the same: then some waits sleep unnecessarily.
//
// Threads: the one that waits.
class VainSpins {
 public:
  // Longer than a long spin and a few messages, shorter than the time slice for which a peer loses its processor.
  static constexpr std::int64_t kSoonNs = 1'000'000;
  // More than two ranks on one processor do between two sleeps: a rank that only sends runs ahead as far as lanes
  // allow.
  static constexpr std::uint32_t kFewOperations = 64;
  // Maximum number of waits between two long spins, which take 300 us each: then they add about 1 us to each wait.
  static constexpr int kMostBetween = 255;
  // If there are this many short spins in between, they take as long as a long one. If there are more waits, only one
  // in this many spins.
  static constexpr int kMostShort = 15;
  enum class Spin : std::uint8_t { kOnce, kShort, kLong };

  [[nodiscard]] Spin next() const {
    if (left_ == 0) return Spin::kLong;
    return between_ <= kMostShort || left_ % (kMostShort + 1) == 0 ? Spin::kShort : Spin::kOnce;
  }
  // Called before each sleep, after a spin in which nothing came. `operation`: the number of the waiting operation,
  // modulo 2^32; sends and receives count, too. kLeaveProcessor: the peer seems to share it.
  TurnTaking::Advice note(std::int64_t now_ns, std::uint32_t operation) {
    if (now_ns - woke_ns_ > kSoonNs || operation - woke_in_ > kFewOperations) {
      between_ = left_ = 0;  // there was progress meanwhile
    } else if (left_ > 0) {
      --left_;
    } else {
      const bool were_few = between_ <= kMostShort;
      left_ = between_ = std::min(2 * between_ + 1, kMostBetween);
      if (were_few && between_ > kMostShort) return TurnTaking::Advice::kLeaveProcessor;
    }
    return TurnTaking::Advice::kStay;
  }
  // Called after the sleep.
  void woke(std::int64_t now_ns, std::uint32_t operation) {
    woke_ns_ = now_ns;
    woke_in_ = operation;
  }

 private:
  std::int64_t woke_ns_ = 0;
  std::uint32_t woke_in_ = 0;
  int between_ = 0;  // waits after a useless long spin, before the next one
  int left_ = 0;     // of between_, those still to come
};

// Decides which waits of a thread sleep instead of yielding: beside a program that does not yield, each trial of a
// yield costs a time slice. So each such trial doubles the distance to the next one, and each trial without that cost
// halves it.
//
// Threads: the one that waits.
class YieldTrials {
 public:
  // A wait that sleeps takes about 5 us: at this distance, a trial costs a tenth of the sleeps.
  static constexpr int kMost = 64 * TurnTaking::kSleepsPerSlice;
  // Whether the next wait sleeps.
  [[nodiscard]] bool pending() const { return left_ > 0; }
  // Called in each wait that might yield.
  bool sleeps() {
    if (left_ == 0) return false;
    --left_;
    return true;
  }
  // After a yield, or after all yields of a wait: the longest duration.
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
