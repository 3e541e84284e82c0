#include "streams/stream_record.h"

#include <algorithm>
#include <utility>

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
  if (item.completion == nullptr) return item.event.record->find(item.event.after, item.event.through);
  return {0, item.completion->status(), item.completion->failure()};
}

void StreamRecord::collect_one() {
  Error error = error_of(items_.front());
  error.place = items_.front().place;
  // An error after another one that no query separates is never the first: a stream without queries keeps only one
  // error.
  const bool may_be_first = errors_.empty() || errors_.back().place <= expected_;
  if (!error.status.is_ok() && may_be_first) errors_.push_back(std::move(error));
  items_.pop_front();
}

// Collects the entries of an event first. A loop, because these may contain further events, of other streams; the
// recursion cannot return to this stream, because an event only marks earlier entries.
void StreamRecord::collect(std::uint64_t through) {
  StreamRecord* one = this;
  asking_ = nullptr;  // lack of memory may have ended the last call
  asked_through_ = through;
  while (one != nullptr) {
    if (!one->has_done(one->asked_through_)) {
      one = std::exchange(one->asking_, nullptr);
      continue;
    }
    const Mark& event = one->items_.front().event;
    if (event.record != nullptr && event.record->has_done(event.through)) {
      event.record->asking_ = one;
      event.record->asked_through_ = event.through;
      one = event.record.get();
    } else {
      one->collect_one();
    }
  }
}

StreamRecord::Error StreamRecord::first(std::uint64_t after, std::uint64_t through) {
  collect(through);
  return find(after, through);
}

StreamRecord::Error StreamRecord::find(std::uint64_t after, std::uint64_t through) const {
  const auto is_behind = [](std::uint64_t place, const Error& error) { return place < error.place; };
  const auto found = std::upper_bound(errors_.begin(), errors_.end(), after, is_behind);
  return found == errors_.end() || found->place > through ? Error() : *found;
}

void StreamRecord::forget(std::uint64_t through) {
  while (!errors_.empty() && errors_.front().place <= through) errors_.pop_front();
}

}  // namespace tutti::internal
