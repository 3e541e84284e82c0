// What is queued: behind other operations of the communicator, in streams, by groups.
#include "calls/descriptions.h"
#include "communicator/communicator.h"
#include "communicator/queue_task.h"
#include "streams/host_functions.h"

namespace tutti::internal {

Status Communicator::run(std::span<const Transfer> transfers) {
  accept();
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
  accept();
  if (pending_.load(std::memory_order_acquire) == 0) return execute(batch->calls, batch->transfers);
  return run_behind(Queued(std::move(batch)));
}

Status Communicator::run_behind(Queued next) {
  if (HostFunctions::runs_here()) return HostFunctions::waits_here();
  std::shared_ptr<Completion> completion;
  if (Status s = queue(std::move(next), nullptr, &completion); !s.is_ok()) return s;
  return completion->wait_until_ended();
}

Status Communicator::enqueue(const Call& call, Stream& stream) {
  accept();
  if (finalized_ || failure_->failed()) return refuse();
  std::shared_ptr<Completion> completion;
  return queue(Queued(call), &stream, &completion);
}

Status Communicator::enqueue(std::shared_ptr<const Batch> batch, std::shared_ptr<Completion> before,
                             std::shared_ptr<Completion>* completion) {
  accept();
  if (finalized_ || failure_->failed()) return refuse();
  Queued next(std::move(batch));
  next.before = std::move(before);
  return queue(std::move(next), nullptr, completion);
}

Status Communicator::enqueue(const Transfer& transfer, Stream& stream) {
  accept();
  if (finalized_ || failure_->failed()) return refuse();
  std::shared_ptr<const Batch> batch;
  if (Status s = copy({&transfer, 1}, &batch); !s.is_ok()) return s;
  std::shared_ptr<Completion> completion;
  return queue(Queued(std::move(batch)), &stream, &completion);
}

// A call that cannot be queued fails the communicator: the peers have queued theirs.
Status Communicator::queue(Queued next, Stream* stream, std::shared_ptr<Completion>* completion) {
  std::shared_ptr<Completion> made;
  const char* const what = next.device != nullptr  ? name_of(next.device->batch())
                           : next.batch != nullptr ? "group"
                                                   : name_of(next.call.collective);
  Status status = guarded([&] {
    made = std::make_shared<Completion>(failure_);
    Completion::follow(made, next.before);
    next.completion = made;
    if (next.call.varying != nullptr) {
      next.varying = std::make_unique<VaryingCopy>(next.call, ranks(), rank());
      next.call.varying = &next.varying->counts();
    }
    if (next.call.custom != nullptr) next.custom = named_operator_;
    next.float_mode = FloatMode::current();
    const MutexLock lock(mutex_);
    if (engine_ == nullptr) {
      auto engine = executor::Engine::get(settings_.progress_threads, settings_.moves != Moves::kNone);
      if (!engine.is_ok()) return engine.status();
      queue_task_ = std::make_unique<QueueTask>(*this, **engine);
      engine_ = std::move(*engine);
    }
    if (stream != nullptr) next.before = stream->append(made);
    queue_.push_back(std::move(next));
    // From here on nothing can fail.
    *completion = made;
    pending_.fetch_add(1, std::memory_order_acq_rel);
    if (!std::exchange(queue_runs_, true)) engine_->submit(queue_task_.get());
    return Status();
  });
  if (status.is_ok()) return status;
  status = guarded([&] { return fail(what, status); });
  if (made != nullptr) made->complete(status);  // it may be in the stream
  return status;
}

}  // namespace tutti::internal
