#include "communicator/submission_queue.h"

#include <fmt/core.h>

#include <utility>

#include "calls/descriptions.h"
#include "communicator/queue_task.h"
#include "communicator/survivor_mode.h"
#include "device/backend.h"
#include "streams/host_functions.h"

namespace tutti::internal {

SubmissionQueue::SubmissionQueue(const Epoch& epoch, Operations& operations, Failures& failures)
    : epoch_(epoch), operations_(operations), failures_(failures) {}

SubmissionQueue::~SubmissionQueue() = default;

// A failed communicator does not wait for streams to reach its calls. The order matters: a call is in pending_ before
// the device stops counting it as coming.
bool SubmissionQueue::has_queued() const {
  return (device_ != nullptr && device_->coming() != 0 && !failures_.failed()) || !empty();
}

Status SubmissionQueue::run(Queued next) {
  if (HostFunctions::runs_here()) return HostFunctions::waits_here();
  std::shared_ptr<Completion> completion;
  if (Status s = submit(std::move(next), nullptr, &completion); !s.is_ok()) return s;
  return completion->wait_until_ended();
}

Status SubmissionQueue::submit(Queued next, Stream* stream, std::shared_ptr<Completion>* completion) {
  std::shared_ptr<Completion> made;
  const char* const what = next.device != nullptr  ? name_of(next.device->batch())
                           : next.batch != nullptr ? "group"
                                                   : name_of(next.call.collective);
  Status status = guarded([&] {
    made = std::make_shared<Completion>(epoch_.failure());
    Completion::follow(made, next.before);
    next.completion = made;
    if (next.call.varying != nullptr) {
      next.varying = std::make_unique<VaryingCopy>(next.call, epoch_.ranks(), epoch_.rank());
      next.call.varying = &next.varying->counts();
    }
    next.float_mode = FloatMode::current();
    const MutexLock lock(mutex_);
    if (engine_ == nullptr) {
      const Settings& settings = epoch_.settings();
      auto engine = executor::Engine::get(settings.progress_threads, settings.moves != Moves::kNone);
      if (!engine.is_ok()) return engine.status();
      task_ = std::make_unique<QueueTask>(epoch_, *this, operations_, failures_, **engine);
      engine_ = std::move(*engine);
    }
    if (stream != nullptr) next.before = stream->append(made);
    items_.push_back(std::move(next));
    // From here on nothing can fail.
    *completion = made;
    pending_.fetch_add(1, std::memory_order_acq_rel);
    if (!std::exchange(runs_, true)) engine_->submit(task_.get());
    return Status();
  });
  if (status.is_ok()) return status;
  status = guarded(
      [&] { return survivor_mode_ != nullptr ? survivor_mode_->fail(what, status) : failures_.fail(what, status); });
  if (made != nullptr) made->complete(status);  // the item may be in the stream
  return status;
}

void SubmissionQueue::wait() {
  constexpr std::int64_t kLookMs = 200;
  constexpr std::int64_t kLookAtKernelMs = 1;  // no notification announces the end of a kernel
  const auto runs_kernel = [&] { return device_ != nullptr && !failures_.failed() && device_->runs_kernel(); };
  const std::int64_t timeout_ms = epoch_.settings().timeout_ms;
  // The other ranks' streams may never reach the call. All ranks have called, so no other timeout covers this wait.
  const Deadline longest = Deadline::after_ms(timeout_ms);
  for (bool kernel = runs_kernel(); has_queued() || kernel; kernel = runs_kernel()) {
    if (device_ != nullptr) device_->look();
    if (kernel && !has_queued() && longest.passed()) {
      (void)failures_.fail(
          "finalize",
          Status::timeout(fmt::format("a collective has waited for the streams of all ranks for {} ms", timeout_ms)));
    }
    const Deadline deadline = Deadline::after_ms(kernel ? kLookAtKernelMs : kLookMs);
    const MutexLock lock(mutex_);
    while (has_queued() || kernel) {
      if (!changed_.wait_until(mutex_, deadline)) break;
    }
  }
}

void SubmissionQueue::wait_until_at_rest() {
  const MutexLock lock(mutex_);
  while (runs_) changed_.wait(mutex_);
}

void SubmissionQueue::look_again() {
  const MutexLock lock(mutex_);
  changed_.notify_all();
}

bool SubmissionQueue::take(Queued* item) {
  const MutexLock lock(mutex_);
  if (items_.empty()) return false;
  *item = std::move(items_.front());
  items_.pop_front();
  return true;
}

bool SubmissionQueue::keeps_task() {
  const MutexLock lock(mutex_);
  if (!items_.empty()) return true;
  runs_ = false;
  changed_.notify_all();  // wakes the thread that destroys the communicator
  return false;
}

}  // namespace tutti::internal
