#include "communicator/stream_record.h"

#include <algorithm>

namespace tutti::internal {

// Never destroyed: user code may use streams during static destruction.
ForkMutex& streams_mutex = *new ForkMutex;

Status Mark::tell() const {
  if (record == nullptr) return {};
  StreamRecord::Error error;
  {
    const MutexLock lock(streams_mutex);
    error = record->first(after, through);
  }
  if (error.failure != nullptr) error.failure->set_told();
  return error.status;
}

std::uint64_t StreamRecord::add(std::shared_ptr<Completion> completion) {
  return add(Item{0, std::move(completion), {}});
}

std::uint64_t StreamRecord::add(Mark event) {
  return add(Item{0, nullptr, std::move(event)});
}

std::uint64_t StreamRecord::add(Item item) {
  collect(last_);
  item.place = last_ + 1;
  items_.push_back(std::move(item));
  return ++last_;
}

void StreamRecord::expect(std::uint64_t through) {
  expected_ = std::max(expected_, through);
}

StreamRecord::Error StreamRecord::error_of(const Item& item) {
  if (item.completion == nullptr) {
    return item.event.record->first(item.event.after, item.event.through);
  }
  return {0, item.completion->status(), item.completion->failure()};
}

void StreamRecord::collect(std::uint64_t through) {
  while (!items_.empty() && items_.front().place <= through && items_.front().done()) {
    Error error = error_of(items_.front());
    error.place = items_.front().place;
    // Behind an error up to which nobody asks it is never the first: a stream that nobody asks keeps one.
    const bool may_be_first = errors_.empty() || errors_.back().place <= expected_;
    if (!error.status.is_ok() && may_be_first) errors_.push_back(std::move(error));
    items_.pop_front();
  }
}

StreamRecord::Error StreamRecord::first(std::uint64_t after, std::uint64_t through) {
  collect(through);
  const auto found = std::find_if(errors_.begin(), errors_.end(), [&](const Error& e) { return e.place > after; });
  return found == errors_.end() || found->place > through ? Error() : *found;
}

void StreamRecord::forget(std::uint64_t through) {
  while (!errors_.empty() && errors_.front().place <= through) errors_.pop_front();
}

}  // namespace tutti::internal
