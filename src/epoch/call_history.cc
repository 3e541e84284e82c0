#include "epoch/call_history.h"

#include "base/status.h"

namespace tutti::internal {

bool CallHistory::Recorded::read(std::uint32_t number, Seen* seen) const {
  if (state.load(std::memory_order_acquire) != written(number)) return false;
  const transport::Fingerprint fingerprint{
      number, call.load(std::memory_order_relaxed), root.load(std::memory_order_relaxed),
      count_low.load(std::memory_order_relaxed), count_high.load(std::memory_order_relaxed)};
  seen->before = before.load(std::memory_order_relaxed);
  seen->plan = plan.load(std::memory_order_acquire);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (state.load(std::memory_order_relaxed) != written(number)) return false;
  seen->call = executor::without_history(fingerprint);
  return true;
}

CallSummary CallHistory::summary() const {
  CallSummary summary;
  Status remembered;
  const std::uint32_t last = sequence();
  for (std::uint32_t back = kKept; back-- > 0;) {
    const std::uint32_t number = last - back;
    Recorded::Seen seen;
    if (!entries_[number % kKept].read(number, &seen)) continue;
    summary.operations = number;
    summary.hash = next(seen.before, seen.call);
    if (!remembered.is_ok()) continue;
    remembered = guarded([&] {
      CallRecord& record = summary.calls.emplace_back();
      record.sequence = number;
      record.call = {std::uint64_t{seen.call.root} << 32 | seen.call.call, executor::count_of(seen.call)};
      record.before = seen.before;
      record.text = executor::describe(seen.call);
      if (seen.plan != nullptr) record.plan = seen.plan->text;
      return Status();
    });
  }
  if (!remembered.is_ok()) summary.calls.clear();
  return summary;
}

}  // namespace tutti::internal
