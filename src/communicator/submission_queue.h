// The queued work of a communicator: calls made while operations are in flight, in streams, in groups and by devices.
// The progress engine runs the items one after the other (queue_task.h).
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
class SurvivorMode;

// One item of the queue: a call, a batch, or a device's batch.
struct Queued {
  Queued() = default;
  // `operator_of`: keeps the operator that the call refers to; null if it is built in.
  Queued(const Call& one, std::shared_ptr<const CustomOperator> operator_of) : call(one) {
    if (one.custom != nullptr) custom = std::move(operator_of);
  }
  explicit Queued(std::shared_ptr<const Batch> all) : batch(std::move(all)) {}
  explicit Queued(std::unique_ptr<DeviceRun> all) : device(std::move(all)) {}
  std::shared_ptr<const Batch> batch;  // null: the item is `call`
  std::unique_ptr<DeviceRun> device;   // null if it is not a device's batch
  Call call;
  std::unique_ptr<VaryingCopy> varying;          // counts that the call refers to, if any
  std::shared_ptr<const CustomOperator> custom;  // operator that the call refers to, if any
  std::shared_ptr<Completion> completion;
  std::shared_ptr<Completion> before;  // the preceding item in its stream
  FloatMode float_mode;                // of the thread that queued the item: user-defined functions run in it
};

// Threads: submit(), run() and wait() by the thread that makes the communicator's calls, and submit() also by the
// device's; the rest as stated.
class SubmissionQueue {
 public:
  // All outlive this.
  SubmissionQueue(const Epoch& epoch, Operations& operations, Failures& failures);
  SubmissionQueue(const SubmissionQueue&) = delete;
  SubmissionQueue& operator=(const SubmissionQueue&) = delete;
  ~SubmissionQueue();
  // Calls may be waiting in streams of the device. Null: there is no device.
  void set_device(DeviceBackend* device) { device_ = device; }

  // Calls and transfers run there. Not while something is queued.
  void set_survivor_mode(SurvivorMode* mode) { survivor_mode_ = mode; }
  [[nodiscard]] SurvivorMode* survivor_mode() const { return survivor_mode_; }

  // Whether the queue is empty: then the thread that makes the calls may run one directly. Any thread.
  [[nodiscard]] bool empty() const { return pending_.load(std::memory_order_acquire) == 0; }
  // Whether something is queued, here or in streams of the device. Any thread.
  [[nodiscard]] bool has_queued() const;

  // Runs after everything queued before, and after next.before. *completion: of the whole item; unchanged if it is not
  // queued. `stream`, if not null, has the item as its last from then on. An item that cannot be queued fails the
  // communicator, because the peers have queued theirs.
  Status submit(Queued next, Stream* stream, std::shared_ptr<Completion>* completion);
  // Submits the item and waits for its end.
  Status run(Queued next);
  // Waits until the queue is empty.
  void wait();
  // Waits until the engine no longer has the task: then this may be destroyed.
  void wait_until_at_rest() TUTTI_EXCLUDES(mutex_);
  // Makes wait() check again. Any thread.
  void look_again() TUTTI_EXCLUDES(mutex_);

  // ---- For the task, by its thread
  // Takes the first item; false: the queue is empty.
  bool take(Queued* item) TUTTI_EXCLUDES(mutex_);
  // Whether the current item is the only one.
  [[nodiscard]] bool at_last() const { return pending_.load(std::memory_order_acquire) == 1; }
  // The current item is complete.
  void finish_item() { pending_.fetch_sub(1, std::memory_order_acq_rel); }
  // Whether the engine must keep the task, because there is more to do.
  bool keeps_task() TUTTI_EXCLUDES(mutex_);

 private:
  const Epoch& epoch_;
  Operations& operations_;
  Failures& failures_;
  DeviceBackend* device_ = nullptr;
  SurvivorMode* survivor_mode_ = nullptr;
  std::atomic<std::size_t> pending_{0};  // queued and not complete
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Queued> items_ TUTTI_GUARDED_BY(mutex_);
  std::shared_ptr<executor::Engine> engine_ TUTTI_GUARDED_BY(mutex_);  // set by the first item
  std::unique_ptr<QueueTask> task_ TUTTI_GUARDED_BY(mutex_);           // set by the first item
  bool runs_ TUTTI_GUARDED_BY(mutex_) = false;                         // the engine has the task
};

}  // namespace tutti::internal
