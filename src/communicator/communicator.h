// One rank's part of a communicator. It composes: the epoch (the ranks and their connections), the history of calls,
// failures, operations, the queue, and the device's calls.
//
// Threads: run(), enqueue(), split() and finalize() by one thread at a time, everything else by any. No thread may be
// inside when it is destroyed: api/comm_table.h ensures both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "base/types.h"
#include "calls/batch.h"
#include "calls/call.h"
#include "calls/operators.h"
#include "calls/registered_range.h"
#include "communicator/device_calls.h"
#include "communicator/failures.h"
#include "communicator/operations.h"
#include "communicator/split.h"
#include "communicator/status_survey.h"
#include "communicator/submission_queue.h"
#include "communicator/survivor_mode.h"
#include "communicator/survivors.h"
#include "device/backend.h"
#include "epoch/call_history.h"
#include "epoch/epoch.h"
#include "join/job.h"
#include "memory/device_name.h"
#include "streams/stream.h"

namespace tutti::internal {

class Communicator final {
 public:
  // Collective. `settings`: this rank's. `thread_ranks` is set if all ranks are threads of this process
  // that were created together. joining: see EventRing::open().
  static Result<std::unique_ptr<Communicator>> create(Job job, const Settings& settings,
                                                      std::shared_ptr<ThreadRanks> thread_ranks, Deadline deadline,
                                                      std::unique_ptr<observe::EventRing>* joining);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const { return epoch_->rank(); }
  [[nodiscard]] int ranks() const { return epoch_->ranks(); }
  [[nodiscard]] const Settings& settings() const { return epoch_->settings(); }
  [[nodiscard]] const Epoch& epoch() const { return *epoch_; }
  [[nodiscard]] Failures& failures() { return failures_; }
  [[nodiscard]] const Failures& failures() const { return failures_; }

  // Any thread.
  [[nodiscard]] MadeTable<CustomOperator>& operators() { return operators_; }
  [[nodiscard]] MadeTable<std::uint32_t>& datatypes() { return datatypes_; }  // size of an element in bytes
  [[nodiscard]] MadeTable<RegisteredRange>& registered_ranges() { return registered_ranges_; }
  // Makes `handle` the call's operator; it stays until the operation is complete. Called by the thread that then runs
  // or queues the call. kInvalidArgument for a handle that is not in operators().
  Status set_operator(Call* call, int handle);
  // An error if a forced algorithm cannot run the call.
  [[nodiscard]] Status check_forced(const Call& call) const {
    return epoch_->plans().check_forced(call.collective, order_of(call));
  }

  // Each run() returns when its work is complete on this rank. If the queue has items, the call runs after them.
  Status run(const Call& call);
  // Runs the transfers together. REQUIRES: check_own() is ok.
  Status run(std::span<const Transfer> transfers);
  // Runs the batch's calls in order, then its transfers together.
  Status run(std::shared_ptr<const Batch> batch);
  // See Operations.
  template <class TypeAndOp>
  [[gnu::always_inline]] Operations::Repeated repeat(Collective collective, std::uint64_t types, std::size_t count,
                                                     int root, const void* send, void* recv, TypeAndOp type_and_op) {
    // Binding a queued operation also changes the prepared calls, so this check comes first.
    if (!queue_.empty() || failures_.goes_slowly()) [[unlikely]]
      return Operations::Repeated::kNo;
    epoch_->touch();
    return operations_.repeat(collective, types, count, root, send, recv, type_and_op);
  }
  Status go_on_repeated() { return operations_.go_on_repeated(); }

  // Each call runs after all that was queued here before, and after everything in the stream.
  Status enqueue(const Call& call, Stream& stream);
  Status enqueue(const Transfer& transfer, Stream& stream);
  // Runs after `before`, which may be null. *completion: of the whole batch; unchanged if it is not queued.
  Status enqueue(std::shared_ptr<const Batch> batch, std::shared_ptr<Completion> before,
                 std::shared_ptr<Completion>* completion);

  // Null: the buffers are in the host's memory. A communicator with a device accepts only the calls below.
  [[nodiscard]] DeviceBackend* device_backend() const { return device_ == nullptr ? nullptr : &device_->backend(); }
  // The CUDA device whose memory contains all buffers, or memory::kHost.
  [[nodiscard]] int device() const { return device_ == nullptr ? memory::kHost : device_->backend().ordinal(); }
  // See DeviceBackend::enqueue(); also checks the call.
  Status enqueue_in_stream(const Call& call, void* stream);
  Status enqueue_in_stream(const Transfer& transfer, void* stream);

  // Collective; runs after everything that is queued here. The ranks with the same color >= 0 form a communicator,
  // ordered by their keys and then by their ranks here. Null for a rank with kNoColor. Either all new communicators are
  // made or none: if one rank refuses or cannot make its own, every rank returns an error, and this communicator stays
  // usable. Failures and the end of one of them do not affect the others, except that a dead rank fails all of its
  // communicators.
  Result<std::unique_ptr<Communicator>> split(const SplitWish& wish);
  // Collective over the members only. It is not an operation of this communicator: a thread may be inside one, and this
  // communicator may have failed. Returns when all members have the new communicator, or fails after the init timeout.
  Result<std::unique_ptr<Communicator>> make_group(const GroupWish& wish) const;

  [[nodiscard]] Survivors& survivors() { return survivors_; }
  // Collective over the members that live; see Survivors::shrink().
  Result<std::unique_ptr<Communicator>> shrink(const ShrinkWish& wish) {
    return survivors_.shrink(wish, [this](const GroupWish& group) { return make_group(group); });
  }

  // The ranks whose data the last collective contains, ascending: all, except in survivor mode.
  [[nodiscard]] std::vector<int> contributors() const;

  // As those of Failures, and in survivor mode also of the communicator that runs the collectives.
  void abort();
  void revoke();
  Status fail(std::string_view what, const Status& status);
  [[nodiscard]] Status last_error() const;

  // Waits for queued operations, then tells the peers that this rank leaves, and waits a short time until they do too.
  // kMismatch if the ranks have called different operations. Later operations are refused.
  Status finalize();
  // Ok, or the status that failed the communicator.
  [[nodiscard]] Status async_error();
  // A call was refused for which the other ranks wait: tells them. The communicator stays usable.
  void note_refusal(const Status& status);
  // "ring over shm", "ring over shm through the host". `at_length`: if selection chose it, then also the reason, and
  // the predicted time of each candidate, one line each.
  [[nodiscard]] Result<std::vector<std::string>> describe_plan(Collective collective, std::size_t bytes,
                                                               bool at_length) const;

 private:
  Communicator(std::shared_ptr<Epoch> epoch, std::unique_ptr<OpenDevice> device,
               std::unique_ptr<observe::EventRing>* joining);
  // Collective, with a complete epoch; tells the other ranks of an error. `device`: null for the host's memory.
  static Result<std::unique_ptr<Communicator>> make(const std::shared_ptr<Epoch>& epoch,
                                                    std::unique_ptr<OpenDevice> device, Deadline deadline,
                                                    std::unique_ptr<observe::EventRing>* joining = nullptr);
  Result<std::unique_ptr<Communicator>> make_child(SplitGroup group, const std::vector<std::string>& texts) const;
  Status go_on_without_dead();
  // If memory for the copy is missing, the communicator fails, because the peers wait for the call.
  Result<std::shared_ptr<const Batch>> copy(const Call& call);
  Result<std::shared_ptr<const Batch>> copy(std::span<const Transfer> transfers);
  Status run_behind(std::span<const Transfer> transfers);
  // Not ok if calls cannot be queued here.
  [[nodiscard]] Status check_queueing();
  // Waits, with a limit, until the peers have what was sent to them: then this rank may leave.
  void deliver() const;

  // Destroyed in reverse order, after the epoch's control tree has left.
  const std::shared_ptr<CallHistory> history_;
  const std::shared_ptr<Epoch> epoch_;
  Failures failures_;
  Survivors survivors_;
  Operations operations_;
  SubmissionQueue queue_;
  std::unique_ptr<DeviceCalls> device_;          // null: host memory
  std::unique_ptr<SurvivorMode> survivor_mode_;  // null: off, or a single rank
  std::unique_ptr<StatusSurvey> status_survey_;  // ends before the tree leaves

  MadeTable<CustomOperator> operators_{"operator"};
  MadeTable<std::uint32_t> datatypes_{"datatype"};
  MadeTable<RegisteredRange> registered_ranges_{"window"};
  std::shared_ptr<const CustomOperator> named_operator_;  // of the last call that named one
};

}  // namespace tutti::internal
