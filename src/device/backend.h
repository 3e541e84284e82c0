// Runs a communicator's operations on the memory of a CUDA device, in the order of the calls. It puts them into
// streams, alone or together with those of other ranks (rendezvous.h), or into a graph. A staged operation passes
// through the host (plan.h); a kernel runs a direct one (direct.h).
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

// The communicator's interface for its device's operations.
class DeviceOwner {
 public:
  // The program makes a call: ok, or the reason of its refusal.
  virtual Status begin_call() = 0;
  // A stream has reached a batch; `again`: in a graph, which may run more than once. Ok, or the reason of the refusal.
  // Any thread; calls no driver.
  virtual Status begin_queued(bool again) = 0;
  // Runs after everything queued. The same threads.
  virtual Status queue(std::unique_ptr<DeviceRun> run) = 0;
  // DeviceBackend::coming() has decreased. The same threads.
  virtual void has_come() = 0;
  // Fails the communicator with `status`, the error of `what`; returns the error that has failed it. Any thread.
  virtual Status fail(std::string_view what, Status status) = 0;
  // Whether an algorithm is forced: then no kernel replaces it.
  [[nodiscard]] virtual bool is_forced() const = 0;

 protected:
  DeviceOwner() = default;
  DeviceOwner(const DeviceOwner&) = default;
  DeviceOwner& operator=(const DeviceOwner&) = default;
  ~DeviceOwner() = default;
};

class DeviceBackend {
 public:
  // Joins the rendezvous of the communicator's ranks. `secret`, `timeout_ms`: the communicator's. The other arguments
  // outlive it.
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
  // How a kernel runs such calls: "direct", "direct by windows"; null: none does.
  [[nodiscard]] const char* describe_kernel(Collective collective, std::size_t bytes);

  // Checks that the device has the streams (null: its default one) and can access the buffers. A refusal happens before
  // other ranks know of the call.
  [[nodiscard]] Status check(const Batch& batch, std::span<void* const> streams) const;
  // Queues the batch after everything queued here before, and in the streams: their earlier work ends before the batch
  // begins, and their later work waits for its end. In a capturing stream, the batch becomes part of the graph. May
  // wait a short while for the other ranks of this process. REQUIRES: check() has passed.
  Status enqueue(std::shared_ptr<const Batch> batch, std::span<void* const> streams);
  // The same in two steps, for a thread that calls begin() for all of its ranks before it calls end() for any: then
  // none waits. In between it stays inside all of them. Null: there is nothing to end.
  Result<std::unique_ptr<DeviceSubmission>> begin(std::shared_ptr<const Batch> batch, std::span<void* const> streams);
  Status end(DeviceSubmission* begun);

  // Fails the communicator if a kernel of a graph has reported a failed rendezvous. Any thread.
  void look_at_reports();
  // The same, and also fails it if the device no longer works, because operations in its streams would never end. Asks
  // the driver.
  void look();
  // The number of batches that streams have not reached yet. Any thread.
  [[nodiscard]] std::size_t coming() const { return coming_.load(std::memory_order_acquire); }
  // Whether a direct collective has not ended yet, or the device has failed.
  [[nodiscard]] bool runs_kernel() const { return open_->runs_kernel(); }
  // The communicator has failed: ends the waits of kernels and streams for other ranks. Any thread.
  void stop() noexcept;
  // Streams and graphs no longer reach the communicator.
  void close() { open_->close(); }
  // leave(): no rank waits for this one any more. release(): if all its operations return to the device within
  // `longest_ms`, other communicators can use its memory.
  void leave();
  void release(std::int64_t longest_ms);

  // For streams and graphs: one has reached a batch, for the only time (`once`) or in a graph. Any thread; calls no
  // driver.
  void stream_has_come(const std::shared_ptr<const DevicePlan>& plan, bool once);

 private:
  [[nodiscard]] int rank() const { return ranks_.rank; }
  [[nodiscard]] int ranks() const { return ranks_.ranks(); }
  Status find_capture(std::span<void* const> streams, std::uint64_t* capture) const;
  // A communicator error fails it, unless nothing runs yet.
  Status judge_queued(const Batch& batch, Status status, bool captures);
  // The copies of a batch's pieces, and the host's work on them, in three parts.
  Status begin_staged(DeviceSubmission* own);
  static Status step_staged(const DeviceSubmission& own, std::size_t step);
  Status end_staged(const DeviceSubmission& own);
  // Makes the first stream wait for earlier calls and for all other streams.
  Status gather_streams(const DeviceSubmission& own);
  Status queue_alone(DeviceSubmission* own);
  // To the rendezvous; the last rank to arrive puts the batches of all into their streams.
  void bring(DeviceSubmission* own);
  static void submit_staged(std::span<DeviceSubmission* const> all);
  [[nodiscard]] DevicePlan::Setting setting_of_plan(DeviceChannel& channel) const;
  static Status submit_directly(std::span<DeviceSubmission* const> all);
  // may_run_directly(): whether a kernel may run the call if the ranks have one device, or windows.
  // check_direct_buffers(): whether it can, with these buffers.
  [[nodiscard]] bool may_run_directly(const Call& call) const;
  [[nodiscard]] Status check_direct_buffers(const Call& call) const;
  Status capture(const std::shared_ptr<const Batch>& batch, std::uint64_t capture, void* stream);
  Status capture_directly(const Call& call, std::uint64_t capture, void* stream);
  Status capture_staged(std::shared_ptr<const Batch> batch, std::uint64_t capture, void* stream);
  // Whether graphs get kernels that rendezvous on the device; the same on all ranks.
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
