#include "communicator/call_history.h"

namespace tutti {

bool CallHistory::Entry::read(std::uint32_t number, transport::Fingerprint* print,
                              const executor::PlanIdentity** identity) const {
  if (number == 0 || sequence.load(std::memory_order_acquire) != number) return false;
  *print = {number, call.load(std::memory_order_relaxed), root.load(std::memory_order_relaxed),
            count_low.load(std::memory_order_relaxed), count_high.load(std::memory_order_relaxed)};
  *identity = plan.load(std::memory_order_acquire);
  std::atomic_thread_fence(std::memory_order_acquire);
  return sequence.load(std::memory_order_relaxed) == number;
}

std::vector<CallRecord> CallHistory::records() const {
  std::vector<CallRecord> records;
  const std::uint32_t last = sequence();
  for (std::uint32_t back = kKept; back-- > 0;) {
    transport::Fingerprint print;
    const executor::PlanIdentity* plan = nullptr;
    if (!entries_[(last - back) % kKept].read(last - back, &print, &plan)) continue;
    CallRecord record;
    record.sequence = print.sequence;
    record.call = {std::uint64_t{print.root} << 32 | print.call, executor::count_of(print)};
    record.text = executor::describe(print);
    if (plan != nullptr) record.plan = plan->text;
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace tutti
