// What is queued on a communicator: behind its other operations, in streams, by groups and by devices. The progress
// engine runs it (queue_task.h), one after the other.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <utility>

#include "base/float_mode.h"
#include "base/status.h"
#include "calls/batch.h"
#include "calls/call.h"
#include "calls/operators.h"
#include "communicator/failures.h"
#include "communicator/operations.h"
#include "device/plan.h"
#include "executor/engine.h"
#include "os/mutex.h"
#include "streams/stream.h"

namespace tutti::internal {

class DeviceBackend;
class QueueTask;

// One item of the queue: a call, a batch, or a batch of a device.
struct Queued {
  Queued() = default;
  // `operator_of`: keeps what the call refers to; null if it has no operator of the program's.
  Queued(const Call& one, std::shared_ptr<const CustomOperator> operator_of) : call(one) {
    if (one.custom != nullptr) custom = std::move(operator_of);
  }
  explicit Queued(std::shared_ptr<const Batch> all) : batch(std::move(all)) {}
  explicit Queued(std::unique_ptr<DeviceRun> all) : device(std::move(all)) {}
  std::shared_ptr<const Batch> batch;  // null: the call
  std::unique_ptr<DeviceRun> device;   // else null
  Call call;
  std::unique_ptr<VaryingCopy> varying;          // what the call refers to, if it does
  std::shared_ptr<const CustomOperator> custom;  // the same
  std::shared_ptr<Completion> completion;
  std::shared_ptr<Completion> before;  // in its stream
  FloatMode float_mode;                // of the thread that has queued it: the program's functions run in it
};

// Threads: submit(), run() and wait() by the thread that makes the communicator's calls, and submit() by the device's
// as well; the rest as said.
class SubmissionQueue {
 public:
  // All outlive this.
  SubmissionQueue(const Epoch& epoch, Operations& operations, Failures& failures);
  SubmissionQueue(const SubmissionQueue&) = delete;
  SubmissionQueue& operator=(const SubmissionQueue&) = delete;
  ~SubmissionQueue();
  // Its streams may have still to come to what was called on it. Null: there is none.
  void set_device(DeviceBackend* device) { device_ = device; }

  // Whether nothing is queued: then the thread that makes the calls may run one by itself. Any thread.
  [[nodiscard]] bool empty() const { return pending_.load(std::memory_order_acquire) == 0; }
  // Whether something is queued, here or in streams of the device. Any thread.
  [[nodiscard]] bool has_queued() const;

  // Behind all that was queued before, and behind next.before. *completion: of the item as a whole; unchanged if it is
  // not queued. `stream`, if any, has it as its last from then on. An item that cannot be queued fails the
  // communicator: the peers have queued theirs.
  Status submit(Queued next, Stream* stream, std::shared_ptr<Completion>* completion);
  // The same, and waits for its end.
  Status run(Queued next);
  // Until nothing is queued.
  void wait();
  // Until the engine does not have it any more: then it may be destroyed.
  void wait_until_at_rest() TUTTI_EXCLUDES(mutex_);
  // Has wait() look again. Any thread.
  void look_again() TUTTI_EXCLUDES(mutex_);

  // ---- For the task, by its thread
  // The first item; false: there is none.
  bool take(Queued* item) TUTTI_EXCLUDES(mutex_);
  // Whether no other item is queued than the one at work.
  [[nodiscard]] bool at_last() const { return pending_.load(std::memory_order_acquire) == 1; }
  // The item at work is complete.
  void finish_item() { pending_.fetch_sub(1, std::memory_order_acq_rel); }
  // Whether the engine keeps the task, for which there is more to do.
  bool keeps_task() TUTTI_EXCLUDES(mutex_);

 private:
  const Epoch& epoch_;
  Operations& operations_;
  Failures& failures_;
  DeviceBackend* device_ = nullptr;
  std::atomic<std::size_t> pending_{0};  // queued and not complete
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Queued> items_ TUTTI_GUARDED_BY(mutex_);
  std::shared_ptr<executor::Engine> engine_ TUTTI_GUARDED_BY(mutex_);  // from the first item on
  std::unique_ptr<QueueTask> task_ TUTTI_GUARDED_BY(mutex_);           // the same
  bool runs_ TUTTI_GUARDED_BY(mutex_) = false;                         // the engine has the task
};

}  // namespace tutti::internal
