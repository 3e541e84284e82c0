// The last changes of watched memory: one thread writes them, any thread reads them, without a lock.
//
// The reason is which thread waits for which. A thread inside munmap(2) waits until the writer has taken its report. A
// reader may be a signal handler of such a thread, or be stopped anywhere. So the writer must not wait for any thread.
// It does not allocate or free memory either, because that might unmap.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "memory/memory_monitor.h"

namespace tutti::internal::memory {

class ChangeLog {
 public:
  static constexpr std::uint64_t kRanges = 256;
  using Copy = std::array<MemoryMonitor::Range, kRanges>;

  // The writer calls these around taking reports from the kernel and adding them. In between, a call that changes
  // memory may have returned although its change is not in the log yet.
  void begin_taking() { takings_.fetch_add(1, std::memory_order_seq_cst); }
  void end_taking() { takings_.fetch_add(1, std::memory_order_seq_cst); }
  void add(MemoryMonitor::Range range) {
    const std::uint64_t at = count_.load(std::memory_order_relaxed);
    Slot& slot = slots_[at % kRanges];
    // Released, so that a reader that sees this range instead of an older one also sees a count of at least `at`.
    slot.begin.store(range.begin, std::memory_order_release);
    slot.end.store(range.end, std::memory_order_release);
    count_.store(at + 1, std::memory_order_release);
  }

  // Changes ever added.
  [[nodiscard]] std::uint64_t count() const { return count_.load(std::memory_order_acquire); }
  // Odd while reports are being taken.
  [[nodiscard]] std::uint64_t takings() const { return takings_.load(std::memory_order_seq_cst); }

  // Copies the changes from number *seen on, and moves *seen after them. False if some have been overwritten; then
  // nothing is copied. Any thread.
  bool copy_since(std::uint64_t* seen, Copy* copy, std::size_t* copied) const {
    const std::uint64_t first = *seen;
    const std::uint64_t end = count();
    *copied = 0;
    *seen = end;
    if (end - first >= kRanges) return false;
    for (std::uint64_t i = first; i < end; ++i) {
      const Slot& slot = slots_[i % kRanges];
      (*copy)[static_cast<std::size_t>(i - first)] = {slot.begin.load(std::memory_order_acquire),
                                                      slot.end.load(std::memory_order_acquire)};
    }
    // The writer may be writing the slot of number count(), which is also that of number count() - kRanges.
    if (count() - first >= kRanges) return false;
    *copied = static_cast<std::size_t>(end - first);
    return true;
  }

 private:
  struct Slot {
    std::atomic<const std::byte*> begin{nullptr};
    std::atomic<const std::byte*> end{nullptr};
  };
  std::atomic<std::uint64_t> count_{0};
  std::atomic<std::uint64_t> takings_{0};
  std::array<Slot, kRanges> slots_;
};

}  // namespace tutti::internal::memory
