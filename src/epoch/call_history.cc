#include "epoch/call_history.h"

#include "base/status.h"

namespace tutti::internal {

bool CallHistory::read(std::uint32_t number, Seen* seen) const {
  const observe::Event& event = ring_->event(number);
  if (event.state.load(std::memory_order_acquire) != observe::Event::written(number)) return false;
  transport::Fingerprint fingerprint{number, event.call.load(std::memory_order_relaxed),
                                     event.root.load(std::memory_order_relaxed), 0, 0};
  executor::set_count(&fingerprint, event.count.load(std::memory_order_relaxed));
  seen->before = event.before.load(std::memory_order_relaxed);
  seen->plan = plans_[number % kKept].load(std::memory_order_acquire);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (event.state.load(std::memory_order_relaxed) != observe::Event::written(number)) return false;
  if (sequence() - number >= kKept) return false;  // the plan may be a later one's
  seen->call = executor::without_history(fingerprint);
  return true;
}

CallSummary CallHistory::summary() const {
  CallSummary summary;
  Status remembered;
  const std::uint32_t last = sequence();
  for (std::uint32_t back = kKept; back-- > 0;) {
    const std::uint32_t number = last - back;
    Seen seen;
    if (!read(number, &seen)) continue;
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
