// The calls of a communicator whose buffers are in the memory of a CUDA device: connects the communicator and its
// device backend.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "calls/batch.h"
#include "communicator/failures.h"
#include "communicator/submission_queue.h"
#include "device/backend.h"
#include "epoch/epoch.h"
#include "os/clock.h"

namespace tutti::internal {

// Threads: the one that makes the communicator's calls; DeviceOwner's functions as DeviceOwner says.
class DeviceCalls final : private DeviceOwner {
 public:
  // All outlive this. From then on the failures and the queue know the device.
  DeviceCalls(std::unique_ptr<OpenDevice> device, const Epoch& epoch, Failures& failures, SubmissionQueue& queue);
  // Collective, before the first call.
  Status open_windows(Deadline deadline);

  [[nodiscard]] DeviceBackend& backend() { return *backend_; }
  // Checks the batch, and queues it in `stream`: DeviceBackend::enqueue().
  Status enqueue(std::shared_ptr<const Batch> batch, void* stream);
  // From now on no rank waits for this one, and streams and graphs no longer reach it.
  void close() { backend_->close(); }

 private:
  // See DeviceOwner.
  Status begin_call() override;
  Status begin_queued(bool again) override;
  Status queue(std::unique_ptr<DeviceRun> run) override;
  void has_come() override;
  Status fail(std::string_view what, Status status) override { return failures_.fail(what, std::move(status)); }
  [[nodiscard]] bool is_forced() const override { return !epoch_.settings().algorithm.empty(); }

  const Epoch& epoch_;
  Failures& failures_;
  SubmissionQueue& queue_;
  std::unique_ptr<DeviceBackend> backend_;
};

}  // namespace tutti::internal
