#include "streams/stream.h"

#include <algorithm>
#include <utility>

namespace tutti::internal {

namespace {

// Collects the entries of a destroyed stream when they are done: until then, the records of streams that wait for each
// other's events keep each other alive.
class CollectsRest final : public Continuation {
 public:
  explicit CollectsRest(std::shared_ptr<StreamRecord> record) : record_(std::move(record)) {}
  void run(std::unique_ptr<Continuation> /*self*/) noexcept override {
    // Without memory the records stay.
    (void)guarded([&] {
      const MutexLock lock(streams_mutex);
      record_->collect_all();
      return Status();
    });
  }

 private:
  const std::shared_ptr<StreamRecord> record_;
};

}  // namespace

Stream::~Stream() {
  // Without memory the records stay.
  (void)guarded([&] {
    std::shared_ptr<Completion> last;
    {
      const MutexLock lock(streams_mutex);
      record_->collect_all();
      last = last_;
    }
    const bool is_asked = record_.use_count() > 1;  // by events, or streams that wait for some
    if (is_asked && last != nullptr && !last->done()) Completion::then(*last, std::make_unique<CollectsRest>(record_));
    return Status();
  });
}

std::shared_ptr<Completion> Stream::append(const std::shared_ptr<Completion>& completion) {
  const MutexLock lock(streams_mutex);
  record_->add(completion);
  std::shared_ptr<Completion> before = std::exchange(last_, completion);
  Completion::follow(completion, before);
  return before;
}

void Stream::append_behind(const std::shared_ptr<Completion>& before, const std::shared_ptr<Completion>& completion) {
  const MutexLock lock(streams_mutex);
  std::shared_ptr<Completion> end =
      last_ == nullptr || last_ == before ? completion : Completion::both(last_, completion);
  record_->add(completion);
  last_ = std::move(end);
}

void Stream::wait_for(const Mark& event) {
  const MutexLock lock(streams_mutex);
  // Its own events precede everything that is appended now.
  if (event.record == nullptr || event.record == record_) return;
  std::shared_ptr<Completion> end = last_;
  if (event.end != nullptr) end = last_ == nullptr ? event.end : Completion::both(last_, event.end);
  record_->add(event);
  last_ = std::move(end);
}

std::shared_ptr<Completion> Stream::last() const {
  const MutexLock lock(streams_mutex);
  return last_;
}

Mark Stream::mark() const {
  const MutexLock lock(streams_mutex);
  return {last_, record_, told_, record_->last()};
}

Mark Stream::ask() {
  const MutexLock lock(streams_mutex);
  record_->expect(record_->last());
  return {last_, record_, told_, record_->last()};
}

Status Stream::take_error(const Mark& asked) {
  StreamRecord::Error error;
  {
    const MutexLock lock(streams_mutex);
    // Another thread may have queried in between.
    error = record_->first(told_, asked.through);
    told_ = std::max(told_, asked.through);
    // No event refers to the record: only this stream, and the queried mark.
    if (record_.use_count() == 2) record_->forget(told_);
    if (last_ != nullptr && last_->done()) last_.reset();
  }
  if (error.failure != nullptr) error.failure->set_told();
  return error.status;
}

Status Stream::synchronize() {
  const Mark all = ask();
  if (all.end != nullptr) all.end->wait_until_done();
  return take_error(all);
}

Status Stream::query() {
  const Mark all = ask();
  if (!all.done()) return {Code::kInProgress, "operations are still running"};
  return take_error(all);
}

}  // namespace tutti::internal
