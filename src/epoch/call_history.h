// The calls of one rank on a communicator: the number of its operations, a hash of all of them, and the last ones. So
// ranks can detect different calls, and the error can name them. Other processes can read the calls (observe/layout.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/types.h"
#include "control/call_record.h"
#include "control/control_tree.h"
#include "executor/fingerprint.h"
#include "observe/event_ring.h"
#include "os/ticks.h"

namespace tutti::internal {

// Threads: those that read a call or its number any; all others the thread of the operations.
class CallHistory {
 public:
  static constexpr std::size_t kKept = 16;

  // `before`: the number of operations that count as already called.
  explicit CallHistory(std::uint32_t before = 0, std::unique_ptr<observe::EventRing> ring = nullptr)
      : ring_(ring != nullptr ? std::move(ring) : observe::EventRing::unshared()) {
    ring_->at().sequence.store(before, std::memory_order_relaxed);
  }

  // An operation that has its number and is not noted yet.
  struct Numbered {
    transport::Fingerprint call;  // without the plan
    std::uint64_t before = 0;     // hash of all operations before
    // The fingerprint that travels with the data. `word`: of executor::call_word(), with the plan.
    [[nodiscard]] transport::Fingerprint with(std::uint32_t word) const {
      // Constructed at once: copying it into a message as a whole would stall after stores of single words.
      return {call.sequence, word, call.root, call.count_low, call.count_high};
    }
  };
  // The next operation, with the word of executor::call_word(). note() must follow before this thread waits for a peer:
  // a message that is sent before that is on its way a few nanoseconds sooner.
  Numbered number(std::uint32_t word, std::int32_t root, std::size_t count) {
    const std::uint64_t before = hash_.load(std::memory_order_relaxed);
    const transport::Fingerprint call = executor::make_fingerprint(sequence() + 1, word, root, count);
    hash_.store(next(before, call), std::memory_order_relaxed);
    return {executor::with_history(call, before), before};
  }
  // plan: as for set_plan(); null: there is none yet.
  void note(const Numbered& numbered, const executor::PlanIdentity* plan) {
    ring_->at().sequence.store(numbered.call.sequence, std::memory_order_relaxed);
    observe::Word<std::uint64_t>& calls = ring_->at().calls[numbered.call.call % kCollectives];
    calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    write(numbered, plan);
  }
  // Numbers and notes the next operation.
  transport::Fingerprint begin(Collective collective, DataType type, ReduceOp op, std::int32_t root,
                               std::size_t count) {
    const Numbered numbered = number(executor::call_word(collective, type, op), root, count);
    note(numbered, nullptr);
    return numbered.call;
  }
  // An operation without a plan, because there is nothing to do.
  void begin_empty(std::uint32_t word, std::int32_t root) {
    note(number(word, root, 0), nullptr);
    if (ring_->records()) ring_->measure_collective(executor::collective_of(word), 0);
  }
  // For the operation that began last. REQUIRES: the identity lives until the control tree has left, because summaries
  // use it.
  void set_plan(const executor::PlanIdentity& plan) {
    plans_[sequence() % kKept].store(&plan, std::memory_order_release);
    ring_->name_plan(plan.hash, plan.text);
    ring_->event(sequence()).plan.store(plan.hash, std::memory_order_relaxed);
  }

  // The plan of the operation that began last; null: it has none yet.
  [[nodiscard]] const executor::PlanIdentity* plan() const {
    return plans_[sequence() % kKept].load(std::memory_order_relaxed);
  }

  // The number of the operation that began last; 0 before the first.
  [[nodiscard]] std::uint32_t sequence() const { return ring_->at().sequence.load(std::memory_order_relaxed); }
  // Of all operations that have begun.
  [[nodiscard]] std::uint64_t hash() const { return hash_.load(std::memory_order_relaxed); }
  // While it exists, a thread is inside an operation, as status queries of other ranks see it.
  class Inside {
   public:
    explicit Inside(CallHistory& history) : history_(history) { history_.set_inside(true); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() { history_.set_inside(false); }

   private:
    CallHistory& history_;
  };
  void set_inside(bool inside, observe::Whose whose = observe::Whose::kThread) { ring_->set_inside(inside, whose); }
  [[nodiscard]] Whereabouts whereabouts() const {
    return {sequence(), ring_->at().inside.load(std::memory_order_relaxed) != 0};
  }
  // For what other processes see besides the calls.
  [[nodiscard]] observe::EventRing& ring() const { return *ring_; }
  // Consistent, and up to date for the thread of the operations. If there is no memory for the last calls, it has only
  // the numbers.
  [[nodiscard]] CallSummary summary() const;

 private:
  static_assert(kKept <= observe::kEvents && observe::kEvents % kKept == 0);
  static_assert(32 % kCollectives == 0);  // a call word begins with 5 bits for the collective
  struct Seen {
    transport::Fingerprint call;  // without its history
    std::uint64_t before = 0;     // hash of all operations before
    const executor::PlanIdentity* plan = nullptr;
  };
  // False if the operation with this number is not kept, or no longer.
  bool read(std::uint32_t number, Seen* seen) const;

  void write(const Numbered& numbered, const executor::PlanIdentity* identity) {
    const transport::Fingerprint& call = numbered.call;
    observe::Event& event = ring_->event(call.sequence);
    event.state.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    event.call.store(call.call, std::memory_order_relaxed);
    event.root.store(call.root, std::memory_order_relaxed);
    event.count.store(executor::count_of(call), std::memory_order_relaxed);
    event.before.store(numbered.before, std::memory_order_relaxed);
    event.plan.store(identity == nullptr ? 0 : identity->hash, std::memory_order_relaxed);
    const std::uint64_t now = ticks();
    event.begun.store(now, std::memory_order_relaxed);
    event.waited.store(0, std::memory_order_relaxed);
    plans_[call.sequence % kKept].store(identity, std::memory_order_relaxed);
    event.state.store(observe::Event::written(call.sequence), std::memory_order_release);
    ring_->set_begun(now);
  }

  // Injective in `hash`: histories that differ stay different after the same further calls.
  static constexpr std::uint64_t next(std::uint64_t hash, const transport::Fingerprint& call) {
    const auto mix = [](std::uint64_t value) {
      value *= 0x9e3779b97f4a7c15u;
      return value ^ value >> 32;
    };
    return mix(mix(hash ^ (std::uint64_t{call.root} << 32 | call.call)) ^ executor::count_of(call));
  }

  const std::unique_ptr<observe::EventRing> ring_;
  std::atomic<std::uint64_t> hash_{0};
  std::array<std::atomic<const executor::PlanIdentity*>, kKept> plans_{};  // by number, of the last ones
};

}  // namespace tutti::internal
