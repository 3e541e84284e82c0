// One rank's place in a job. It composes: the epoch (who the ranks are, and how they are connected), the history of
// calls, failures, operations, the queue, and the device's calls.
//
// Threads: run(), enqueue(), split() and finalize() by one thread at a time, all else by any. Nobody may be inside when
// it is destroyed: api/comm_table.h sees to both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
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
#include "communicator/submission_queue.h"
#include "device/backend.h"
#include "epoch/call_history.h"
#include "epoch/epoch.h"
#include "join/job.h"
#include "memory/device_name.h"
#include "streams/stream.h"

namespace tutti::internal {

class Communicator final {
 public:
  // Collective. `settings`: with rank 0's transports. `thread_ranks` is set if all ranks are threads of this process
  // that were made together.
  static Result<std::unique_ptr<Communicator>> create(Job job, const Settings& settings,
                                                      std::shared_ptr<ThreadRanks> thread_ranks, Deadline deadline);
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
  [[nodiscard]] MadeTable<std::uint32_t>& datatypes() { return datatypes_; }  // bytes of an element
  [[nodiscard]] MadeTable<RegisteredRange>& registered_ranges() { return registered_ranges_; }
  // Makes `handle` the call's operator, which stays until the operation is complete. By the thread that then runs or
  // queues the call. kInvalidArgument for what is none of operators().
  Status set_operator(Call* call, int handle);
  // Whether an algorithm is forced that cannot run the call.
  [[nodiscard]] Status check_forced(const Call& call) const {
    return epoch_->plans().check_forced(call.collective, order_of(call));
  }

  // Each runs what it is given and returns when that is complete on this rank. Behind what is queued, if anything is.
  Status run(const Call& call);
  // Together. REQUIRES: check_own() is ok.
  Status run(std::span<const Transfer> transfers);
  // The batch's calls in their order, then its transfers together.
  Status run(std::shared_ptr<const Batch> batch);
  // See Operations.
  template <class TypeAndOp>
  [[gnu::always_inline]] Operations::Repeated repeat(Collective collective, std::uint64_t types, std::size_t count,
                                                     int root, const void* send, void* recv, TypeAndOp type_and_op) {
    // What is queued binds calls, too: first of all, so that nothing is looked at meanwhile.
    if (!queue_.empty() || failures_.goes_slowly()) [[unlikely]]
      return Operations::Repeated::kNo;
    epoch_->touch();
    return operations_.repeat(collective, types, count, root, send, recv, type_and_op);
  }
  Status go_on_repeated() { return operations_.go_on_repeated(); }

  // Each is queued behind all that was queued here before, and behind all that is in the stream.
  Status enqueue(const Call& call, Stream& stream);
  Status enqueue(const Transfer& transfer, Stream& stream);
  // Behind `before`, which may be null. *completion: of the batch as a whole; unchanged if it is not queued.
  Status enqueue(std::shared_ptr<const Batch> batch, std::shared_ptr<Completion> before,
                 std::shared_ptr<Completion>* completion);

  // Null: the buffers are in the host's memory. One that has a device takes what follows alone.
  [[nodiscard]] DeviceBackend* device_backend() const { return device_ == nullptr ? nullptr : &device_->backend(); }
  // The CUDA device whose memory all buffers are in, or memory::kHost.
  [[nodiscard]] int device() const { return device_ == nullptr ? memory::kHost : device_->backend().ordinal(); }
  // See DeviceBackend::enqueue(); checks it as well.
  Status enqueue_in_stream(const Call& call, void* stream);
  Status enqueue_in_stream(const Transfer& transfer, void* stream);

  // Collective, behind all that is queued here: the ranks that name one color >= 0 make a communicator, ordered by
  // their keys and then by their ranks here. Null for a rank that names kNoColor. All of them are made or none: what
  // one rank refuses, or cannot make, is an error on every rank, and this communicator goes on. It and those that are
  // made of it fail and end apart from each other, but for a rank that dies.
  Result<std::unique_ptr<Communicator>> split(const SplitWish& wish);
  // Collective over the members alone, which is no operation of this communicator: a thread may be inside one, and
  // this communicator may have failed. Returns when all members have theirs, or fails after the init timeout.
  Result<std::unique_ptr<Communicator>> make_group(const GroupWish& wish) const;

  // Waits for what is queued, then tells the peers that this rank leaves, and waits a short time until they do so
  // too. kMismatch if the ranks have called different things. Later operations are refused.
  Status finalize();
  // Ok, or what has failed the communicator.
  [[nodiscard]] Status async_error();
  // A call was refused for which the other ranks wait: they are told. The communicator is as it was.
  void note_refusal(const Status& status) {
    failures_.note_refusal(status, [this] { return queue_.has_queued(); });
  }
  // "ring over shm", "ring over shm through the host"; `at_length`: where it is selected, behind that why, and what the
  // candidates are predicted to take, a line each.
  [[nodiscard]] Result<std::vector<std::string>> describe_plan(Collective collective, std::size_t bytes,
                                                               bool at_length) const;

 private:
  Communicator(std::shared_ptr<Epoch> epoch, std::unique_ptr<OpenDevice> device);
  // Collective, with an epoch that stands; what goes wrong the other ranks are told. `device`: null for the host's
  // memory.
  static Result<std::unique_ptr<Communicator>> make(const std::shared_ptr<Epoch>& epoch,
                                                    std::unique_ptr<OpenDevice> device, Deadline deadline);
  Result<std::unique_ptr<Communicator>> make_child(SplitGroup group, const std::vector<std::string>& texts) const;
  // What cannot be copied for want of memory fails the communicator: the peers wait for it.
  Result<std::shared_ptr<const Batch>> copy(const Call& call);
  Result<std::shared_ptr<const Batch>> copy(std::span<const Transfer> transfers);
  Status run_behind(std::span<const Transfer> transfers);
  // Waits, not for long, until the peers have what was sent to them: then this rank may leave.
  void deliver() const;

  // Destroyed in reverse order, after the epoch's control tree has left.
  const std::shared_ptr<CallHistory> history_;
  const std::shared_ptr<Epoch> epoch_;
  Failures failures_;
  Operations operations_;
  SubmissionQueue queue_;
  std::unique_ptr<DeviceCalls> device_;  // null: memory of the host

  MadeTable<CustomOperator> operators_{"operator"};
  MadeTable<std::uint32_t> datatypes_{"datatype"};
  MadeTable<RegisteredRange> registered_ranges_{"window"};
  std::shared_ptr<const CustomOperator> named_operator_;  // by the last call that has named one
};

}  // namespace tutti::internal
