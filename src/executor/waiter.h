// How a rank waits in a blocking operation: spin for a while, then yield the processor, then sleep until a peer acts
// (those that are queued wait together: progress_thread.h). Where ranks have to take turns on the processors it yields
// from the start: whoever it waits for may need this processor. That is so where the communicator has more
// ranks on this machine than there are processors, and where it is noticed, for as long as it is: ranks of other
// communicators and other jobs count as well (turn_taking.h). Beside a program that does not yield it sleeps instead of
// yielding, and spins for longer before that unless it is of no use (VainSpins).
//
// Every wait ends: idle() returns an error once the communicator has failed, a lane has failed, a peer
// that is waited for has left, or the deadline of the operation has passed.
//
// Threads: used by the one thread that runs operations. FailureState may be written by others.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/stall.h"
#include "base/status.h"
#include "executor/affinity.h"
#include "executor/turn_taking.h"
#include "os/clock.h"
#include "os/processor.h"
#include "transport/event_set.h"
#include "transport/transport.h"
#include "transport/wakeup_fd.h"

namespace tutti::internal::executor {

// What an operation waits for at the moment; asked only when it has waited for a while.
class Waiting {
 public:
  struct For {
    transport::Link* link = nullptr;
    std::int32_t peer = -1;
    bool sends = false;     // has something left to send to the peer, or to get back from it
    bool receives = false;  // has something left to receive
  };
  virtual ~Waiting() = default;
  // Appends the lanes that are not finished. A link may appear twice.
  virtual void list(std::vector<For>* lanes) const = 0;
};

// The processor to which an oversubscribed rank goes back.
struct PreferredProcessor {
  int processor = -1;          // -1: anywhere
  std::size_t step_bytes = 0;  // not in operations with longer messages
};

class Waiter : private StallWatch::Awaited {
 public:
  // An oversubscribed rank goes back to its preferred processor no more often than that: a move takes some 20 us.
  static constexpr std::int64_t kPreferredIntervalNs = 2'000'000;

  // oversubscribed: the communicator has more ranks than processors on this machine. moves: see affinity.h. preferred:
  // to which an oversubscribed rank goes back, -1: none. failure outlives the waiter.
  Waiter(transport::WakeupFd wakeup_fd, const FailureState& failure, bool oversubscribed, std::int64_t timeout_ms,
         Moves moves = Moves::kOwn, PreferredProcessor preferred = {})
      : wakeup_fd_(std::move(wakeup_fd)),
        failure_(failure),
        oversubscribed_(oversubscribed),
        timeout_ns_(timeout_ms * 1'000'000),
        affinity_(moves),
        preferred_(oversubscribed && moves == Moves::kAll ? preferred : PreferredProcessor()) {
    spin(!oversubscribed);
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // A link that operations may wait for.
  void add_link(transport::Link& link);
  // After this, add_link() of so many does not throw.
  void expect_links(std::size_t count) { links_.reserve(links_.size() + count); }

  // Outlives the waiter.
  void watch_stalls(StallWatch* watch) { stalls_ = watch; }

  // At the start of an operation, which outlives the wait. step_bytes: its longest message, from which follows how long
  // the turns of others may be. number: the communicator's operation number, modulo 2^32.
  void begin(const Waiting& waiting, std::size_t step_bytes = 0, std::uint32_t number = 0) {
    waiting_ = &waiting;
    number_ = number;
    ++begun_;
    step_bytes_ = step_bytes;
    idle_count_ = 0;
    deadline_ns_ = 0;
    departed_since_ns_ = 0;
  }
  // Something moved.
  void progress() { idle_count_ = 0; }
  // Nothing could move: waits a little.
  Status idle() {
    const std::uint32_t count = idle_count_++;
    if (count < spins_) {
      if (count >= kHotSpins) {
        pause_processor();
      } else {
        between_looks();
      }
      return {};
    }
    return idle_slowly();
  }

  // -- For who drives several operations at a time, and waits for all of them together.
  // Nothing could move. Looks for trouble now and then, and does not wait: a kTimeout says no more than that;
  // explain() does.
  Status look(std::int64_t now_ns);
  // The timeout that look() has returned, with what is known of the ranks that have not arrived. Waits a little.
  [[nodiscard]] Status explain(Status status);
  // Before the driver sleeps in the set, which has wakeup_fd(): from now on what a peer does is an event of the set.
  // False if something has happened already. To be called twice, with a fence between (transport/wakeup_fd.h).
  [[nodiscard]] bool arm(const transport::EventSet& set);
  // After the sleep.
  void disarm();
  // What peers do is no event of the set any more. Before another thread waits for the links.
  void leave(const transport::EventSet& set);
  [[nodiscard]] int wakeup_fd() const { return wakeup_fd_.fd(); }

  // How often a rank looks for a message before it calls anything: at least once.
  [[nodiscard]] std::uint32_t hot_looks() const { return std::clamp(spins_, 1U, kHotSpins); }
  // Looks that the processor makes ahead of time are thrown away, with all behind them, when the peer writes.
  static void between_looks() { wait_for_loads(); }
  // Whether it yields from the start.
  [[nodiscard]] bool takes_turns() const { return spins_ == 0; }
  // Whether nothing has moved for longer than a peer that is running needs to move something.
  [[nodiscard]] bool stalled() const { return idle_count_ > stall_; }
  // Whether nothing has moved for so long that what it takes to wait differently does not matter.
  [[nodiscard]] bool waits_long() const { return idle_count_ > spins_ + kLongYields; }

 private:
  // The first looks cost nothing but themselves: a pause takes longer than a cache miss.
  static constexpr std::uint32_t kHotSpins = 256;
  static constexpr std::uint32_t kSpins = 500;
  // Before a sleep beside a program that does not yield, by VainSpins::Spin. The longest is some 300 us of one lane. A
  // peer that has just been woken has come by then, and two ranks that both run again go on by spinning. With kSpins
  // each woke the other for every message: all-reduce of 1 KiB beside two busy loops took 80 us in some runs, 0.24 to
  // 0.5 so.
  static constexpr std::array<std::uint32_t, 3> kSpinsBesideOthers{1, kSpins, 4000};
  static constexpr std::uint32_t kLongYields = 64;
  static constexpr std::int64_t kMs = 1'000'000;
  static constexpr std::int64_t kYieldNs = 2 * kMs;
  static constexpr std::int64_t kLookNs = kMs;  // of look()
  static constexpr int kMaxSleepMs = kFailureCheckMs;

  Status idle_slowly();
  // `set`: null if the thread looks again soon.
  bool arm_lanes(const transport::EventSet* set);
  // The first look of a wait.
  void begin_looking(std::int64_t now);
  void yield();
  void go_back();
  void spin(bool spins);
  // Rises with each operation, also where short collectives do without a wait.
  [[nodiscard]] std::uint32_t operations() const { return number_ + begun_; }
  // How often the calling thread has lost or given its processor.
  static std::int64_t processor_switches();
  Status look_for_trouble(std::int64_t now);
  [[nodiscard]] Status tell_of_stall(std::int64_t now) {
    if (stalls_ == nullptr) return {};
    return stalls_->stalled((now - yielding_since_ns_) / kMs, (deadline_ns_ - now) / kMs, this);
  }
  [[nodiscard]] std::vector<int> awaited() const override;
  [[nodiscard]] Status look_for_departure(std::int64_t now) const;
  void sleep(std::int64_t now);
  [[nodiscard]] Status timed_out();
  [[nodiscard]] Status bare_timeout() const;

  const transport::WakeupFd wakeup_fd_;
  const FailureState& failure_;
  const bool oversubscribed_;
  std::uint32_t spins_ = 0;  // looks before the first yield
  std::uint32_t stall_ = 0;  // looks after which stalled() holds
  const std::int64_t timeout_ns_;
  const Affinity affinity_;
  const PreferredProcessor preferred_;
  std::size_t step_bytes_ = 0;
  std::uint32_t number_ = 0;
  std::vector<transport::Link*> links_;  // that have descriptors
  std::uint64_t user_ = 0;               // of sleeping places; 0: there is no such link
  bool armed_elsewhere_ = false;         // arm() has been called since leave()
  const Waiting* waiting_ = nullptr;
  StallWatch* stalls_ = nullptr;
  std::vector<Waiting::For> lanes_;  // of waiting_, as last listed
  std::uint32_t idle_count_ = 0;
  std::int64_t deadline_ns_ = 0;  // of the operation; 0: not waited yet
  std::int64_t yielding_since_ns_ = 0;
  std::int64_t departed_since_ns_ = 0;
  std::int64_t next_look_ns_ = 0;  // of look()
  bool overdue_ = false;           // the deadline has passed, and that has not been explained
  bool disturbed_ = false;         // the last sleep of the wait did not come about
  std::int64_t went_back_ns_ = 0;
  YieldTrials trials_;       // pending: waits are to sleep where they would yield
  bool trial_cost_ = false;  // the last wait that yielded lost a time slice so
  std::uint32_t begun_ = 0;  // by begin()
  VainSpins vain_spins_;
  TurnTaking turn_taking_{&processor_switches};
};

}  // namespace tutti::internal::executor
