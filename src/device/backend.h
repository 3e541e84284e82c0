// Runs a communicator's operations on the memory of a CUDA device, in the order of the calls. It puts them into
// streams, alone or together with those of other ranks (rendezvous.h), or into a graph. A staged operation passes
// through the host (plan.h); a direct one is done by a kernel (direct.h).
//
// Threads: the one that makes the communicator's calls, unless a function says otherwise.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/failure.h"
#include "base/status.h"
#include "calls/batch.h"
#include "device/open_device.h"
#include "device/plan.h"
#include "device/rendezvous.h"
#include "join/unique_id.h"
#include "transport/ranks.h"

namespace tutti::internal {

// The communicator, as its device's operations need it.
class DeviceOwner {
 public:
  // The program calls: ok, or why that is refused.
  virtual Status begin_call() = 0;
  // A stream has come to what was called; `again`: in a graph, which may run more than once. Ok, or why it is refused.
  // Any thread; calls no driver.
  virtual Status begin_queued(bool again) = 0;
  // Behind all that is queued. The same threads.
  virtual Status queue(std::unique_ptr<DeviceRun> run) = 0;
  // DeviceBackend::coming() is less than it was. The same threads.
  virtual void has_come() = 0;
  // Fails the communicator by `status`, which `what` has met; returns what has failed it. Any thread.
  virtual Status fail(std::string_view what, Status status) = 0;
  // Whether an algorithm is forced: then no kernel does its work.
  [[nodiscard]] virtual bool is_forced() const = 0;

 protected:
  DeviceOwner() = default;
  DeviceOwner(const DeviceOwner&) = default;
  DeviceOwner& operator=(const DeviceOwner&) = default;
  ~DeviceOwner() = default;
};

class DeviceBackend {
 public:
  // Joins the rendezvous of the communicator's ranks. `secret`, `timeout_ms`: the communicator's. The rest outlives it.
  DeviceBackend(std::unique_ptr<OpenDevice> open, DeviceOwner& owner, const Ranks& ranks, const FailureState& failure,
                const Secret& secret, std::int64_t timeout_ms)
      : owner_(owner),
        ranks_(ranks),
        failure_(failure),
        timeout_ms_(timeout_ms),
        open_(std::move(open)),
        rendezvous_(DeviceRendezvous::join(secret, ranks.peers, ranks.rank, open_->device())) {}
  DeviceBackend(const DeviceBackend&) = delete;
  DeviceBackend& operator=(const DeviceBackend&) = delete;

  // Collective, before the first call.
  Status open_windows(const DeviceRendezvous::AllGather& all_gather);

  [[nodiscard]] int ordinal() const { return open_->device().ordinal(); }
  // How a kernel does such calls: "direct", "direct by windows"; null: none does.
  [[nodiscard]] const char* describe_kernel(Collective collective, std::size_t bytes);

  // That the device takes the streams, null for its default one, and reaches the buffers. What is refused is so before
  // other ranks know of it.
  [[nodiscard]] Status check(const Batch& batch, std::span<void* const> streams) const;
  // Queues the batch behind all that was queued here before, and in the streams: what is in them before has ended when
  // it begins, and what comes then waits for its end. In a stream that captures, it becomes part of the graph. May wait
  // a short while for the other ranks of this process. REQUIRES: check() has passed.
  Status enqueue(std::shared_ptr<const Batch> batch, std::span<void* const> streams);
  // The same of a thread that has begun it for all of its ranks before it ends it for any: then none waits. In between
  // it stays inside all of them. Null: nothing is to be ended.
  Result<std::unique_ptr<DeviceSubmission>> begin(std::shared_ptr<const Batch> batch, std::span<void* const> streams);
  Status end(DeviceSubmission* begun);

  // Fails the communicator if a kernel of a graph has reported that its rendezvous failed. Any thread.
  void look_at_reports();
  // The same, and also fails it if the device no longer works: operations in its streams would never end. Asks the
  // driver.
  void look();
  // How many batches a stream has still to come to. Any thread.
  [[nodiscard]] std::size_t coming() const { return coming_.load(std::memory_order_acquire); }
  // Whether a direct collective has still to end; or the device has failed.
  [[nodiscard]] bool runs_kernel() const { return open_->runs_kernel(); }
  // The communicator has failed: kernels and streams that wait for other ranks go on. Any thread.
  void stop() noexcept;
  // Streams and graphs do not find the communicator any more.
  void close() { open_->close(); }
  // No rank waits for this one any more. Then, if all that it called is back within so long, its memory serves others.
  void leave();
  void release(std::int64_t longest_ms);

  // For streams and graphs: one has come to a batch, for the only time, or in a graph. Any thread; calls no driver.
  void stream_has_come(const std::shared_ptr<const DevicePlan>& plan, bool once);

 private:
  [[nodiscard]] int rank() const { return ranks_.rank; }
  [[nodiscard]] int ranks() const { return ranks_.ranks(); }
  Status find_capture(std::span<void* const> streams, std::uint64_t* capture) const;
  // What is the communicator's fault is its failure, unless nothing runs yet.
  Status judge_queued(const Batch& batch, Status status, bool captures);
  // The copies of a batch's pieces, and the host's work on them, in three parts.
  Status begin_staged(DeviceSubmission* own);
  static Status step_staged(const DeviceSubmission& own, std::size_t step);
  Status end_staged(const DeviceSubmission& own);
  // Behind what was called before, and behind what is in all of its streams.
  Status gather_streams(const DeviceSubmission& own);
  Status queue_alone(DeviceSubmission* own);
  // To the rendezvous; the last rank that comes puts the batches of all into their streams.
  void bring(DeviceSubmission* own);
  static void submit_staged(std::span<DeviceSubmission* const> all);
  [[nodiscard]] DevicePlan::Setting setting_of_plan(DeviceChannel& channel) const;
  static Status submit_directly(std::span<DeviceSubmission* const> all);
  // Whether a kernel may do the call where the ranks have one device, or windows; whether it can, with these buffers.
  [[nodiscard]] bool may_run_directly(const Call& call) const;
  [[nodiscard]] Status check_direct_buffers(const Call& call) const;
  Status capture(const std::shared_ptr<const Batch>& batch, std::uint64_t capture, void* stream);
  Status capture_directly(const Call& call, std::uint64_t capture, void* stream);
  Status capture_staged(std::shared_ptr<const Batch> batch, std::uint64_t capture, void* stream);
  // Whether graphs have kernels that rendezvous on the device; the same on all ranks.
  Result<bool> can_capture_directly();

  DeviceOwner& owner_;
  const Ranks& ranks_;
  const FailureState& failure_;
  const std::int64_t timeout_ms_;
  const std::unique_ptr<OpenDevice> open_;
  const std::shared_ptr<DeviceRendezvous> rendezvous_;
  bool has_windows_ = false;
  std::uint32_t captured_calls_ = 0;  // that rendezvous on the device
  std::atomic<std::size_t> coming_{0};
};

}  // namespace tutti::internal
