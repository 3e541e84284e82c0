// The device resources of a communicator whose buffers are in the memory of a CUDA device.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/status.h"
#include "device/channel.h"
#include "device/kernels.h"
#include "device/plan.h"
#include "memory/cuda_device.h"
#include "os/mutex.h"

namespace tutti::internal {

class DeviceBackend;

// Gives streams and graphs, which may outlive the communicator, access to its backend.
class StreamGate {
 public:
  explicit StreamGate(DeviceBackend& backend) : backend_(&backend) {}
  void close() {
    const MutexLock lock(mutex_);
    backend_ = nullptr;
  }
  // Calls use(backend), unless the backend is gone; returns whether it was there.
  template <class Use>
  bool enter(Use use) {
    const MutexLock lock(mutex_);
    if (backend_ == nullptr) return false;
    use(*backend_);
    return true;
  }

 private:
  Mutex mutex_;
  DeviceBackend* backend_ TUTTI_GUARDED_BY(mutex_);
};

// The channel for the part of one capture that belongs to a communicator: its operations run one after the other.
class CapturedChannel {
 public:
  CapturedChannel(DeviceChannel& channel, std::uint64_t capture) : channel_(channel), capture_(capture) {
    channel_.begin_capture();
  }
  ~CapturedChannel() { channel_.give_back(); }
  CapturedChannel(const CapturedChannel&) = delete;
  CapturedChannel& operator=(const CapturedChannel&) = delete;
  [[nodiscard]] std::uint64_t capture() const { return capture_; }
  [[nodiscard]] DeviceChannel& channel() const { return channel_; }

 private:
  DeviceChannel& channel_;
  const std::uint64_t capture_;
};

// A batch that a stream reaches: once, or each time that the graph runs that has captured it.
//
// Ownership: the stream's until it has reached the batch, or the graph's.
class ComingBatch {
 public:
  // `channel`: of a graph; else null.
  ComingBatch(std::shared_ptr<StreamGate> gate, std::shared_ptr<const DevicePlan> plan,
              std::shared_ptr<const CapturedChannel> channel = nullptr)
      : gate_(std::move(gate)), plan_(std::move(plan)), channel_(std::move(channel)) {}

  // Callbacks of the driver with a ComingBatch: a stream has reached it, for the only time, or in a graph; the graph is
  // destroyed.
  static void come_once(void* batch);
  static void come(void* batch);
  static void destroy(void* batch) { delete static_cast<ComingBatch*>(batch); }

 private:
  const std::shared_ptr<StreamGate> gate_;
  const std::shared_ptr<const DevicePlan> plan_;
  const std::shared_ptr<const CapturedChannel> channel_;
};

// Threads: the one that makes the communicator's calls, except for check().
class OpenDevice {
 public:
  // kUnhandledCudaError.
  static Result<std::unique_ptr<OpenDevice>> open(int ordinal);
  ~OpenDevice();
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  [[nodiscard]] const memory::CudaDevice& device() const { return *device_; }
  [[nodiscard]] DeviceChannel& channel() const { return *channel_; }
  // Null: the library has no code for the device.
  [[nodiscard]] const DirectKernels* kernels() const { return kernels_; }
  // event(): for the order between streams. captured_event(): after this communicator's part of the last capture.
  [[nodiscard]] memory::CudaDevice::Event event() const { return event_; }
  [[nodiscard]] memory::CudaDevice::Event captured_event() const { return captured_event_; }
  // After the last direct collective.
  [[nodiscard]] memory::CudaDevice::Event direct_event() const { return direct_event_; }

  // Makes the stream wait until the communicator's earlier calls are back in the device.
  Status follow(memory::CudaDevice::Stream stream) const {
    if (last_is_direct_) return device_->wait_for(stream, direct_event_);
    return device_->wait_for(stream, channel_->word(DeviceChannel::Word::kReturned), channel_->count());
  }
  // Notes whether the last call is direct; if so, direct_event() follows it.
  void set_last_direct(bool direct) { last_is_direct_ = direct; }
  // Whether all staged operations are back in the device; waits for that at most this long.
  [[nodiscard]] bool await_return(std::int64_t longest_ms) const;
  // Whether a direct collective has not ended yet, or the device has failed.
  [[nodiscard]] bool runs_kernel() const;
  // Whether the device still works. Any thread of the program.
  [[nodiscard]] Status check() const;

  // begins_capture(): nothing of this capture was recorded here before. set_captured(): something was, and
  // captured_event() follows it.
  [[nodiscard]] bool begins_capture(std::uint64_t capture) const { return last_capture_ != capture; }
  void set_captured(std::uint64_t capture) { last_capture_ = capture; }
  Result<std::shared_ptr<const CapturedChannel>> captured_channel(std::uint64_t capture);
  // `backend`: the owner of this.
  const std::shared_ptr<StreamGate>& gate(DeviceBackend& backend);
  // Streams and graphs no longer reach the communicator.
  void close();

 private:
  OpenDevice() = default;

  const memory::CudaDevice* device_ = nullptr;
  DeviceChannel* channel_ = nullptr;
  memory::CudaDevice::Event event_ = nullptr;
  memory::CudaDevice::Event captured_event_ = nullptr;
  memory::CudaDevice::Event direct_event_ = nullptr;
  const DirectKernels* kernels_ = nullptr;
  bool last_is_direct_ = false;
  std::uint64_t last_capture_ = 0;
  std::shared_ptr<StreamGate> gate_;               // null: nothing has been called
  std::weak_ptr<const CapturedChannel> captured_;  // the last one
};

}  // namespace tutti::internal
