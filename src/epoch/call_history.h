// The calls of one rank on a communicator: the number of its operations, a hash of all of them, and the last ones. So
// ranks can detect different calls, and the error can name them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.h"
#include "control/call_record.h"
#include "control/control_tree.h"
#include "executor/fingerprint.h"

namespace tutti::internal {

// Threads: begin() and set_plan() by the thread of the operations; all others any.
class CallHistory {
 public:
  static constexpr std::size_t kKept = 16;

  // `before`: the number of operations that count as already called.
  explicit CallHistory(std::uint32_t before = 0) : sequence_(before) {}

  // The next operation.
  transport::Fingerprint begin(Collective collective, DataType type, ReduceOp op, std::int32_t root,
                               std::size_t count) {
    return begin(executor::call_word(collective, type, op), root, count, nullptr);
  }
  // The same with the word of executor::call_word(), and with the plan, as for set_plan(). planned_word: the
  // fingerprint's word with both.
  transport::Fingerprint begin(std::uint32_t word, std::int32_t root, std::size_t count,
                               const executor::PlanIdentity& plan, std::uint32_t planned_word) {
    const transport::Fingerprint call = begin(word, root, count, &plan);
    // Constructed at once: copying it into a message as a whole would stall after stores of single words.
    return {call.sequence, planned_word, call.root, call.count_low, call.count_high};
  }
  // An operation without a plan, because there is nothing to do.
  void begin_empty(std::uint32_t word, std::int32_t root) { begin(word, root, 0, nullptr); }
  // For the operation that began last. REQUIRES: the identity lives until the control tree has left, because summaries
  // use it.
  void set_plan(const executor::PlanIdentity& plan) {
    entries_[sequence() % kKept].plan.store(&plan, std::memory_order_release);
  }

  // The number of the operation that began last; 0 before the first.
  [[nodiscard]] std::uint32_t sequence() const { return sequence_.load(std::memory_order_relaxed); }
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
  void set_inside(bool inside) { inside_.store(inside, std::memory_order_relaxed); }
  [[nodiscard]] Whereabouts whereabouts() const { return {sequence(), inside_.load(std::memory_order_relaxed)}; }
  // Consistent, and up to date for the thread of the operations. If there is no memory for the last calls, it has only
  // the numbers.
  [[nodiscard]] CallSummary summary() const;

 private:
  // One writer; the sequence number shows a reader whether the entry was written during the read.
  struct alignas(64) Recorded {
    std::atomic<std::uint64_t> state{0};  // written(number); 0 while the rest is being written, and before
    std::atomic<std::uint32_t> call{0};
    std::atomic<std::uint32_t> root{0};
    std::atomic<std::uint32_t> count_low{0};
    std::atomic<std::uint32_t> count_high{0};
    std::atomic<std::uint64_t> before{0};  // hash of all operations before
    std::atomic<const executor::PlanIdentity*> plan{nullptr};

    static constexpr std::uint64_t written(std::uint32_t number) { return std::uint64_t{1} << 32 | number; }
    void write(const transport::Fingerprint& fingerprint, std::uint64_t hash_before,
               const executor::PlanIdentity* identity) {
      state.store(0, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_release);
      call.store(fingerprint.call, std::memory_order_relaxed);
      root.store(fingerprint.root, std::memory_order_relaxed);
      count_low.store(fingerprint.count_low, std::memory_order_relaxed);
      count_high.store(fingerprint.count_high, std::memory_order_relaxed);
      before.store(hash_before, std::memory_order_relaxed);
      plan.store(identity, std::memory_order_relaxed);
      state.store(written(fingerprint.sequence), std::memory_order_release);
    }
    struct Seen {
      transport::Fingerprint call;  // without its history
      std::uint64_t before = 0;
      const executor::PlanIdentity* plan = nullptr;
    };
    // False if the entry is not the operation with this number, or no longer.
    bool read(std::uint32_t number, Seen* seen) const;
  };

  transport::Fingerprint begin(std::uint32_t word, std::int32_t root, std::size_t count,
                               const executor::PlanIdentity* plan) {
    const std::uint32_t sequence = sequence_.load(std::memory_order_relaxed) + 1;
    const std::uint64_t before = hash_.load(std::memory_order_relaxed);
    const transport::Fingerprint call = executor::make_fingerprint(sequence, word, root, count);
    hash_.store(next(before, call), std::memory_order_relaxed);
    sequence_.store(sequence, std::memory_order_relaxed);
    const transport::Fingerprint fingerprint = executor::with_history(call, before);
    entries_[sequence % kKept].write(fingerprint, before, plan);
    return fingerprint;
  }

  // Injective in `hash`: histories that differ stay different after the same further calls.
  static constexpr std::uint64_t next(std::uint64_t hash, const transport::Fingerprint& call) {
    const auto mix = [](std::uint64_t value) {
      value *= 0x9e3779b97f4a7c15u;
      return value ^ value >> 32;
    };
    return mix(mix(hash ^ (std::uint64_t{call.root} << 32 | call.call)) ^ executor::count_of(call));
  }

  std::atomic<std::uint32_t> sequence_;
  std::atomic<bool> inside_{false};
  std::atomic<std::uint64_t> hash_{0};
  std::array<Recorded, kKept> entries_;
};

}  // namespace tutti::internal
