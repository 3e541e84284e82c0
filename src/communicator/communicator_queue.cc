// What is queued: behind other operations of the communicator, in streams, by groups.
#include "communicator/communicator.h"
#include "communicator/host_functions.h"

namespace tutti::internal {

Status Communicator::run(std::span<const Transfer> transfers) {
  if (shares_process_) process_rank_.touch();
  if (pending_.load(std::memory_order_acquire) == 0) [[likely]]
    return execute(transfers);
  return run_copy_behind(transfers);
}

[[gnu::noinline]] Status Communicator::run_copy_behind(std::span<const Transfer> transfers) {
  std::shared_ptr<const Batch> batch;
  Status status = copy(transfers, &batch);
  return status.is_ok() ? run_behind(Queued(std::move(batch))) : status;
}

// What cannot be queued for want of memory fails the communicator: the peers wait for it.
Status Communicator::copy(std::span<const Transfer> transfers, std::shared_ptr<const Batch>* batch) {
  Status status = guarded([&] {
    auto made = std::make_shared<Batch>();
    made->transfers.assign(transfers.begin(), transfers.end());
    *batch = std::move(made);
    return Status();
  });
  return status.is_ok() ? status : fail(transfers.front().sends ? "send" : "recv", std::move(status));
}

Status Communicator::run(std::shared_ptr<const Batch> batch) {
  if (shares_process_) process_rank_.touch();
  if (pending_.load(std::memory_order_acquire) == 0) return execute(*batch);
  return run_behind(Queued(std::move(batch)));
}

Status Communicator::run_behind(Queued next) {
  if (HostFunctions::runs_here()) return HostFunctions::waits_here();
  std::shared_ptr<Completion> completion;
  if (Status s = queue(std::move(next), nullptr, &completion); !s.is_ok()) return s;
  return completion->wait_until_ended();
}

Status Communicator::enqueue(const Call& call, Stream& stream) {
  if (shares_process_) process_rank_.touch();
  if (finalized_ || failure_->failed()) return refuse();
  std::shared_ptr<Completion> completion;
  return queue(Queued(call), &stream, &completion);
}

Status Communicator::enqueue(std::shared_ptr<const Batch> batch, std::shared_ptr<Completion> before,
                             std::shared_ptr<Completion>* completion) {
  if (shares_process_) process_rank_.touch();
  if (finalized_ || failure_->failed()) return refuse();
  Queued next(std::move(batch));
  next.before = std::move(before);
  return queue(std::move(next), nullptr, completion);
}

Status Communicator::enqueue(const Transfer& transfer, Stream& stream) {
  if (shares_process_) process_rank_.touch();
  if (finalized_ || failure_->failed()) return refuse();
  std::shared_ptr<const Batch> batch;
  if (Status s = copy({&transfer, 1}, &batch); !s.is_ok()) return s;
  std::shared_ptr<Completion> completion;
  return queue(Queued(std::move(batch)), &stream, &completion);
}

// A call that cannot be queued fails the communicator: the peers have queued theirs.
Status Communicator::queue(Queued next, Stream* stream, std::shared_ptr<Completion>* completion) {
  std::shared_ptr<Completion> made;
  const char* const what = next.batch != nullptr ? "group" : name_of(next.call.collective);
  Status status = guarded([&] {
    made = std::make_shared<Completion>(failure_);
    made->follow(next.before);
    next.completion = made;
    if (next.call.varying != nullptr) {
      next.varying = std::make_unique<VaryingCopy>(next.call, ranks(), rank());
      next.call.varying = &next.varying->counts();
    }
    if (next.call.custom != nullptr) next.custom = named_operator_;
    const MutexLock lock(mutex_);
    if (!progress_.running()) {
      if (Status s = progress_.start([this] { run_queue(); }, kWorkStackBytes); !s.is_ok()) return s;
    }
    if (stream != nullptr) next.before = stream->append(made);
    queue_.push_back(std::move(next));
    // From here on nothing can fail.
    *completion = made;
    pending_.fetch_add(1, std::memory_order_acq_rel);
    queue_changed_.notify_all();
    return Status();
  });
  if (status.is_ok()) return status;
  status = fail(what, std::move(status));
  if (made != nullptr) made->complete(status);  // it may be in the stream
  return status;
}

// The progress thread: runs queued calls in order until the communicator is destroyed.
void Communicator::run_queue() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!stopping_ && queue_.empty()) queue_changed_.wait(mutex_);
    if (queue_.empty()) return;
    Queued next = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    if (next.before != nullptr) wait_behind(*next.before);
    Status status = next.batch != nullptr ? execute(*next.batch) : execute(next.call);
    // Before the waiter is woken, so that it may run its next call by itself.
    pending_.fetch_sub(1, std::memory_order_acq_rel);
    next.completion->complete(std::move(status));
    lock.lock();
    queue_changed_.notify_all();  // who finalizes
  }
}

// The operation before in the same stream may be another communicator's, which may wait for long. How it ends is no
// matter of this communicator, whose own failure ends the waiting.
void Communicator::wait_behind(const Completion& before) const {
  while (!before.wait_for_ms(kFailureCheckMs) && !failure_->failed()) {
  }
}

}  // namespace tutti::internal
