// How a rank waits in a blocking operation: spins for a while, then yields the processor, then sleeps until a peer acts
// (queued operations wait together: progress_thread.h). If ranks are oversubscribed it yields from the start, because
// the awaited rank may need this processor. That is the case if the communicator has more ranks on this machine than
// there are processors, and while it is detected: ranks of other communicators and other jobs count as well
// (turn_taking.h). Beside a program that does not yield it sleeps instead of yielding, and before that spins longer
// unless spins are useless (VainSpins).
//
// Every wait ends: idle() returns an error once the communicator has failed, a lane that waits has failed, an awaited
// peer has left, or the deadline of the operation has passed.
//
// Threads: used by the one thread that runs operations. Others may write FailureState.
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

// The peers for which an operation waits; called only after it has waited for a while.
class Waiting {
 public:
  struct For {
    transport::Link* link = nullptr;
    std::int32_t peer = -1;
    bool sends = false;     // has more to send to the peer, or waits for its completion
    bool receives = false;  // has more to receive
  };
  virtual ~Waiting() = default;
  // Appends the lanes that are not finished, and that wait for no other lane to free their place in the window of
  // slices. A link may appear twice.
  virtual void list(std::vector<For>* lanes) const = 0;
  // Appends the lanes of the operation that send, also those that are finished: their bytes may be on the way.
  virtual void list_sends(std::vector<For>* lanes) const = 0;
};

// The processor to which an oversubscribed rank returns.
struct PreferredProcessor {
  int processor = -1;          // -1: anywhere
  std::size_t step_bytes = 0;  // only in operations with messages of up to this size
};

class Waiter : private StallWatch::Awaited {
 public:
  // An oversubscribed rank returns to its preferred processor at most once in this time: a move takes about 20 us.
  static constexpr std::int64_t kPreferredIntervalNs = 2'000'000;

  // oversubscribed: the communicator has more ranks than processors on this machine. moves: see affinity.h. preferred:
  // the processor to which an oversubscribed rank returns, -1: none. failure outlives the waiter.
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
  // After this, add_link() does not throw for this many links.
  void expect_links(std::size_t count) { links_.reserve(links_.size() + count); }

  // `watch` outlives the waiter or is replaced by null.
  void watch_stalls(StallWatch* watch) { stalls_ = watch; }

  // At the start of an operation, which outlives the wait. step_bytes: its longest message, which determines how long
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
  // Called if nothing could move: waits a little.
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

  // -- For a thread that drives several operations at a time, and waits for all of them together.
  // Called if nothing could move. Looks for trouble now and then, and does not wait: a kTimeout is bare; explain() adds
  // the reason.
  Status look(std::int64_t now_ns);
  // Adds to the timeout that look() has returned what is known about missing ranks. Waits a little.
  [[nodiscard]] Status explain(Status status);
  // Called before the driver sleeps in the set, which has wakeup_fd(): from now on a peer's action is an event of the
  // set. False if something has happened already. Called twice, with a fence between (transport/wakeup_fd.h).
  [[nodiscard]] bool arm(const transport::EventSet& set);
  // Called after the sleep.
  void disarm();
  // Removes the links from the set. Called before another thread waits for them.
  void leave(const transport::EventSet& set);
  [[nodiscard]] int wakeup_fd() const { return wakeup_fd_.fd(); }

  // How often a rank looks for a message before it makes any call: at least once.
  [[nodiscard]] std::uint32_t hot_looks() const { return std::clamp(spins_, 1U, kHotSpins); }
  // The processor makes looks ahead of time; when the peer writes, it discards them with everything behind them.
  static void between_looks() { wait_for_loads(); }
  // Whether it yields from the start.
  [[nodiscard]] bool takes_turns() const { return spins_ == 0; }
  // Whether nothing has moved for longer than a running peer needs to move something.
  [[nodiscard]] bool stalled() const { return idle_count_ > stall_; }
  // Whether nothing has moved for so long that the cost of changing the way to wait does not matter.
  [[nodiscard]] bool waits_long() const { return idle_count_ > spins_ + kLongYields; }

 private:
  // The first looks have no pause between them: a pause takes longer than a cache miss.
  static constexpr std::uint32_t kHotSpins = 256;
  static constexpr std::uint32_t kSpins = 500;
  // Looks before a sleep beside a program that does not yield, by VainSpins::Spin. The longest is about 300 us with one
  // lane. By then a peer that has just been woken has arrived, and two ranks that both run again continue spinning.
  // With kSpins each woke the other for every message: all-reduce of 1 KiB beside two busy loops took 80 us in some
  // runs, and 0.24 to 0.5 us with longer spins.
  static constexpr std::array<std::uint32_t, 3> kSpinsBesideOthers{1, kSpins, 4000};
  static constexpr std::uint32_t kLongYields = 64;
  static constexpr std::int64_t kYieldNs = 2 * kNsPerMs;
  static constexpr std::int64_t kLookNs = kNsPerMs;  // of look()
  static constexpr int kMaxSleepMs = kFailureCheckMs;

  Status idle_slowly();
  // `set`: null if the thread looks again soon.
  bool arm_lanes(const transport::EventSet* set);
  // The first look of a wait.
  void begin_looking(std::int64_t now);
  void yield();
  void go_back();
  void spin(bool spins);
  // Rises with each operation, also if short collectives do not wait.
  [[nodiscard]] std::uint32_t operations() const { return number_ + begun_; }
  // How often the calling thread has lost or yielded its processor.
  static std::int64_t processor_switches();
  Status look_for_trouble(std::int64_t now);
  // Tells which links hold up the operation: lanes_, since the last look of the same wait.
  void note_links(std::int64_t now);
  [[nodiscard]] Status tell_of_stall(std::int64_t now) {
    if (stalls_ == nullptr) return {};
    return stalls_->stalled((now - yielding_since_ns_) / kNsPerMs, (deadline_ns_ - now) / kNsPerMs, this);
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
  std::uint32_t stall_ = 0;  // looks after which stalled() is true
  const std::int64_t timeout_ns_;
  const Affinity affinity_;
  const PreferredProcessor preferred_;
  std::size_t step_bytes_ = 0;
  std::uint32_t number_ = 0;
  std::vector<transport::Link*> links_;  // with descriptors
  std::uint64_t user_ = 0;               // for sleeping places; 0: there is no such link
  bool armed_elsewhere_ = false;         // arm() has been called since leave()
  const Waiting* waiting_ = nullptr;
  StallWatch* stalls_ = nullptr;
  std::vector<Waiting::For> lanes_;     // of waiting_, as last listed
  std::vector<Waiting::For> sends_;     // likewise
  std::vector<StallWatch::Held> held_;  // by links
  std::uint32_t idle_count_ = 0;
  std::int64_t deadline_ns_ = 0;  // of the operation; 0: not waited yet
  std::int64_t yielding_since_ns_ = 0;
  std::int64_t departed_since_ns_ = 0;
  std::int64_t next_look_ns_ = 0;  // of look()
  std::int64_t noted_ns_ = 0;      // the last note_links() of this wait
  bool overdue_ = false;           // the deadline has passed, and explain() has not been called yet
  bool disturbed_ = false;         // the last sleep of the wait did not happen
  std::int64_t went_back_ns_ = 0;
  YieldTrials trials_;       // pending: waits sleep instead of yielding
  bool trial_cost_ = false;  // the last wait that yielded lost a time slice
  std::uint32_t begun_ = 0;  // by begin()
  VainSpins vain_spins_;
  TurnTaking turn_taking_{&processor_switches};
};

}  // namespace tutti::internal::executor
