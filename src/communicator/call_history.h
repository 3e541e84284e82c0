// What one rank has called on a communicator: the number of its operations and the last of them, so that ranks which
// have called different things can be told what.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.h"
#include "communicator/bootstrap.h"
#include "executor/fingerprint.h"

namespace tutti {

// begin() and set_plan() by the thread of the operations; all else by any.
class CallHistory {
 public:
  static constexpr std::size_t kKept = 16;

  // The next operation, which has no plan yet.
  transport::Fingerprint begin(Collective collective, DataType type, ReduceOp op, std::int32_t root,
                               std::size_t count) {
    const std::uint32_t sequence = sequence_.load(std::memory_order_relaxed) + 1;
    sequence_.store(sequence, std::memory_order_relaxed);
    const transport::Fingerprint print = executor::make_fingerprint(sequence, collective, type, op, root, count);
    entries_[sequence % kKept].write(print);
    return print;
  }
  // Of the operation that began last. The identity outlives the history.
  void set_plan(const executor::PlanIdentity& plan) {
    entries_[sequence() % kKept].plan.store(&plan, std::memory_order_release);
  }

  // Of the operation that began last; 0 before the first.
  [[nodiscard]] std::uint32_t sequence() const { return sequence_.load(std::memory_order_relaxed); }
  // The last calls, the oldest first.
  [[nodiscard]] std::vector<CallRecord> records() const;

 private:
  // One writer; a reader sees by the sequence number whether it was written meanwhile.
  struct alignas(64) Entry {
    std::atomic<std::uint32_t> sequence{0};  // 0 while the rest is being written, and before
    std::atomic<std::uint32_t> call{0};
    std::atomic<std::uint32_t> root{0};
    std::atomic<std::uint32_t> count_low{0};
    std::atomic<std::uint32_t> count_high{0};
    std::atomic<const executor::PlanIdentity*> plan{nullptr};

    void write(const transport::Fingerprint& print) {
      sequence.store(0, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_release);
      call.store(print.call, std::memory_order_relaxed);
      root.store(print.root, std::memory_order_relaxed);
      count_low.store(print.count_low, std::memory_order_relaxed);
      count_high.store(print.count_high, std::memory_order_relaxed);
      plan.store(nullptr, std::memory_order_relaxed);
      sequence.store(print.sequence, std::memory_order_release);
    }
    // False if it is not, or no longer, the operation of this number.
    bool read(std::uint32_t number, transport::Fingerprint* print, const executor::PlanIdentity** identity) const;
  };

  std::atomic<std::uint32_t> sequence_{0};
  std::array<Entry, kKept> entries_;
};

}  // namespace tutti
