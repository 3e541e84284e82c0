#include "communicator/call_history.h"

namespace tutti::internal {

bool CallHistory::Entry::read(std::uint32_t number, CallRecord* record, std::uint64_t* after) const {
  if (state.load(std::memory_order_acquire) != written(number)) return false;
  const transport::Fingerprint fingerprint{
      number, call.load(std::memory_order_relaxed), root.load(std::memory_order_relaxed),
      count_low.load(std::memory_order_relaxed), count_high.load(std::memory_order_relaxed)};
  record->before = before.load(std::memory_order_relaxed);
  const executor::PlanIdentity* const identity = plan.load(std::memory_order_acquire);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (state.load(std::memory_order_relaxed) != written(number)) return false;
  const transport::Fingerprint alone = executor::without_history(fingerprint);
  record->sequence = number;
  record->call = {std::uint64_t{alone.root} << 32 | alone.call, executor::count_of(alone)};
  record->text = executor::describe(alone);
  if (identity != nullptr) record->plan = identity->text;
  *after = next(record->before, alone);
  return true;
}

CallSummary CallHistory::summary() const {
  CallSummary summary;
  const std::uint32_t last = sequence();
  for (std::uint32_t back = kKept; back-- > 0;) {
    CallRecord record;
    if (!entries_[(last - back) % kKept].read(last - back, &record, &summary.hash)) continue;
    summary.operations = record.sequence;
    summary.calls.push_back(std::move(record));
  }
  return summary;
}

}  // namespace tutti::internal
