// A rank's events in one communicator: written by the rank without locks, allocations and system calls, read by other
// processes (reader.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "observe/event_file.h"
#include "observe/layout.h"
#include "observe/measures.h"
#include "observe/ranges.h"
#include "observe/thread_times.h"
#include "observe/trace_file.h"

namespace tutti::internal::observe {

// Threads: one at a time, beside which others may call fail(), and be Agreeing, each one at a time.
class EventRing {
 public:
  // `communicator`: not 0, and the same on all of its ranks alone. If the kernel refuses memory that others can read,
  // or a descriptor for it, the ring lies in the process's own memory. The file of a process has one descriptor, as
  // long as the process has a ring.
  // `joining`: of the rank that has joined, if it has one, which becomes the communicator's.
  static std::unique_ptr<EventRing> open(std::uint64_t communicator, int rank, int ranks,
                                         std::unique_ptr<EventRing>* joining = nullptr);
  // Of a rank that joins job `job` by this call, until it has a communicator: it is read like a communicator, but not
  // measured.
  static std::unique_ptr<EventRing> joining(std::uint64_t job, int rank, int ranks, std::string_view call);
  // Which no other process can read.
  static std::unique_ptr<EventRing> unshared();
  EventRing(const EventRing&) = delete;
  EventRing& operator=(const EventRing&) = delete;
  ~EventRing();

  [[nodiscard]] Position& at() { return ring_->at; }
  [[nodiscard]] const Position& at() const { return ring_->at; }
  [[nodiscard]] Event& event(std::uint32_t number) { return ring_->events[number % kEvents]; }
  [[nodiscard]] const Event& event(std::uint32_t number) const { return ring_->events[number % kEvents]; }

  // What Event::plan means. `hash`: not 0.
  void name_plan(std::uint32_t hash, std::string_view text);

  // The rank enters or leaves an operation: the transfer of set_transfer(), else the collective that began last.
  // `whose`: whether the calling thread is the program's, or works for it.
  void set_inside(bool inside, Whose whose = Whose::kThread);
  // The collective with the number sequence() has begun; `now`: ticks().
  [[gnu::always_inline]] void set_begun(std::uint64_t now) {
    if (now - outside_since_ > kLongTicks) [[unlikely]]
      note_outside(now);
    outside_since_ = now;
  }
  // Nothing has moved for this time. `awaited`: for these ranks.
  void note_wait(std::int64_t waited_ms, const std::vector<int>& awaited);
  // In the collective that began last, over a network: for this time it waited for bytes of the peer, or (`sends`) the
  // network took no bytes to it.
  void note_link(int peer, bool sends, std::int64_t ns);
  // Before the first of several: for how long the thread had no processor since the last one in this collective.
  void note_delay() noexcept;
  void set_transfer(bool sends, int peer, std::uint64_t bytes);
  // The rank's next operation waits for other work of its stream, or no longer.
  void set_behind(bool behind) noexcept;

  // ---- If TUTTI_METRICS (measures.h) or TUTTI_TRACE (trace_file.h) is set
  [[nodiscard]] bool records() const { return measures_ != nullptr || trace_ != nullptr; }
  [[nodiscard]] bool traces() const { return trace_ != nullptr; }
  // A tool collects ranges (ranges.h).
  [[nodiscard]] bool has_ranges() const { return ranges_ != nullptr; }
  // Of how many hosts the communicator's ranks are.
  void set_hosts(std::size_t hosts);
  // What has been sent over the communicator's links, for measures. Called when operations end, not too often, and by
  // tell_sent(). REQUIRES: no operation runs then, and after tell_sent() none.
  void set_sent(std::function<AllSent()> sent);
  void tell_sent();
  // An operation has succeeded: the collective that began last, now; or, from begin_parts() until `ended`, one of
  // several collectives that have run as one of `all_bytes`; or, from set_transfer() on, one of several transfers.
  void measure_collective(Collective collective, std::uint64_t bytes);
  // The collectives that run as one begin now. REQUIRES: records().
  void begin_parts();
  void measure_part(const CallWords& call, Collective collective, std::uint64_t bytes, std::uint64_t all_bytes,
                    std::uint64_t ended);
  void measure_transfer(bool sends, int peer, std::uint64_t bytes, std::uint64_t ended);

  // Where the executor keeps the steps of each operation; null: nowhere, because the ring does not trace.
  [[nodiscard]] StepLog* step_log() const { return steps_.get(); }
  // The text of Trace::name_job(), which is asked for at most once, with the first steps that are kept.
  void set_job(std::function<std::string()> text) { job_ = std::move(text); }

  // While it exists, the rank is in this call, beside its operations; of nested ones the outermost counts. Any thread.
  class Agreeing {
   public:
    Agreeing(EventRing& ring, std::string_view call);
    Agreeing(const Agreeing&) = delete;
    Agreeing& operator=(const Agreeing&) = delete;
    ~Agreeing();

   private:
    EventRing* ring_;  // null: a nested one
  };
  // What the rank has done since it left its last operation. Nothing: it is inside, or not known. Any thread.
  [[nodiscard]] std::optional<Outside> present_outside() const;
  // The first error stays. `transfer` and the wait of this moment are kept, for those that read the ring later.
  void fail(std::string_view error);

 private:
  // If the rank was outside of operations for this many ticks, it notes what it did meanwhile (Causes). A note takes
  // two microseconds. The time is 4 to 20 ms; on ARM, whose counters have 24 MHz to 1 GHz, 0.5 to 20 ms.
#if defined(__x86_64__)
  static constexpr std::uint64_t kLongTicks = 20'000'000;
#else
  static constexpr std::uint64_t kLongTicks = 500'000;
#endif
  struct Unshared;
  [[gnu::noinline, gnu::cold]] void note_outside(std::uint64_t now) noexcept;
  void note_outside_in_default_mode(std::uint64_t now) noexcept;
  struct Reading {
    std::uint64_t ticks = 0;
    std::int64_t ns = 0;  // CLOCK_MONOTONIC
    OwnTimes own;
    std::uint64_t elsewhere = 0;  // ticks that the process was in collectives of other rings
  };
  // Replaces read_, and returns what it was.
  void end_last(std::uint64_t now) noexcept;
  std::optional<Reading> read_times(std::uint64_t now) noexcept;
  // The row of this collective, which its caller completes by writing the number.
  Causes& take_causes(std::uint32_t number);
  struct LinkWait {
    int peer = -1;
    std::int64_t data_ns = 0;
    std::int64_t room_ns = 0;
  };
  [[nodiscard]] bool has_failed() const {
    return at().failed.load(std::memory_order_relaxed) != Position::kNot;
  }
  // Returns the time.
  std::int64_t set_mark();
  EventRing(const RingPlace& place, std::unique_ptr<Unshared> unshared);
  static std::unique_ptr<EventRing> take();
  void name(std::uint64_t communicator, int rank, int ranks);
  void begin_agreement(std::string_view call);
  void measure(Measured operation, const Times& times);
  void note_sent(std::uint64_t now);
  void begin_range(int kind, std::uint64_t bytes);
  // Of the collective that began last.
  void begin_range();
  void end_range();
  void open_trace(std::uint64_t communicator, int rank, int ranks);
  void add_steps(std::uint32_t number);

  const RingPlace place_;
  Ring* const ring_ = place_.ring;
  const std::unique_ptr<Unshared> unshared_;  // null: it lies in the file
  Measures* measures_ = place_.measures;      // null: it is not measured
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<StepLog> steps_;                   // if there is a trace
  std::function<std::string()> job_;                 // empty: none, or written
  std::function<AllSent()> sent_;                    // empty: none
  std::uint64_t next_sent_ = ~std::uint64_t{0};      // ticks; for sent_
  const Ranges* const ranges_ = Ranges::attached();  // null: no tool collects them
  bool in_range_ = false;
  std::uint64_t range_ = 0;
  LongWait longest_;           // of the operation that runs
  std::uint64_t entered_ = 0;  // ticks
  Whose whose_ = Whose::kThread;
  std::uint64_t outside_since_ = 0;  // ticks: the end of the last operation; if it took the fast path, its begin
  std::uint64_t own_ticks_ = 0;      // inside collectives of this ring that did not take the fast path
  std::optional<Reading> read_;
  std::array<LinkWait, 8> links_{};  // of the first peers for which the collective links_of_ waited
  std::uint32_t links_of_ = 0;
  std::optional<OwnTimes> delayed_;  // at the last note_delay() of links_of_
  std::uint64_t inside_delay_ns_ = 0;
  std::uint64_t looked_ticks_ = 0;  // of the last read_times()
};

}  // namespace tutti::internal::observe
