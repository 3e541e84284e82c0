// What a communicator whose buffers are in the memory of a CUDA device has besides.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "communicator/device_channel.h"
#include "communicator/device_plan.h"
#include "memory/cuda_device.h"

namespace tutti::internal {

class Communicator;

// The way from a graph, which may outlive the communicator, to it.
class GraphGate {
 public:
  explicit GraphGate(Communicator& comm) : comm_(&comm) {}
  void close() {
    const MutexLock lock(mutex_);
    comm_ = nullptr;
  }
  // use(communicator), unless that has gone; whether it was there.
  template <class Use>
  bool enter(Use use) {
    const MutexLock lock(mutex_);
    if (comm_ == nullptr) return false;
    use(*comm_);
    return true;
  }

 private:
  Mutex mutex_;
  Communicator* comm_ TUTTI_GUARDED_BY(mutex_);
};

// The channel of what one stream captures for one graph: its operations come one after the other.
class CapturedChannel {
 public:
  CapturedChannel(DeviceChannel& channel, std::uint64_t capture, void* stream)
      : channel_(channel), capture_(capture), stream_(stream) {
    channel_.begin_capture();
  }
  ~CapturedChannel() { channel_.give_back(); }
  CapturedChannel(const CapturedChannel&) = delete;
  CapturedChannel& operator=(const CapturedChannel&) = delete;
  [[nodiscard]] bool is_of(std::uint64_t capture, const void* stream) const {
    return capture == capture_ && stream == stream_;
  }
  [[nodiscard]] DeviceChannel& channel() const { return channel_; }

 private:
  DeviceChannel& channel_;
  const std::uint64_t capture_;
  const void* const stream_;
};

// A batch that a graph has captured, queued each time the graph runs. Owned by the graph.
class CapturedBatch {
 public:
  CapturedBatch(std::shared_ptr<GraphGate> gate, std::shared_ptr<const DevicePlan> plan,
                std::shared_ptr<const CapturedChannel> channel)
      : gate_(std::move(gate)), plan_(std::move(plan)), channel_(std::move(channel)) {}

  // Functions of the driver's, of a CapturedBatch: the graph has come to it; the graph has gone.
  static void run(void* captured);
  static void destroy(void* captured) { delete static_cast<CapturedBatch*>(captured); }

  [[nodiscard]] const std::shared_ptr<const DevicePlan>& plan() const { return plan_; }

 private:
  const std::shared_ptr<GraphGate> gate_;
  const std::shared_ptr<const DevicePlan> plan_;
  const std::shared_ptr<const CapturedChannel> channel_;
};

// Threads: the one that makes the communicator's calls, but for check().
class OnDevice {
 public:
  // kUnhandledCudaError.
  static Result<std::unique_ptr<OnDevice>> open(int ordinal);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  [[nodiscard]] const memory::CudaDevice& device() const { return *device_; }
  [[nodiscard]] DeviceChannel& channel() const { return *channel_; }
  // For the order between streams.
  [[nodiscard]] memory::CudaDevice::Event event() const { return event_; }
  // Whether the device still works. Any thread of the program's.
  [[nodiscard]] Status check() const { return device_->check(event_); }

  Result<std::shared_ptr<const CapturedChannel>> captured_channel(std::uint64_t capture, void* stream);
  // `comm`: the communicator that has this.
  const std::shared_ptr<GraphGate>& gate(Communicator& comm);
  // Graphs do not find the communicator any more.
  void close();

 private:
  OnDevice() = default;

  const memory::CudaDevice* device_ = nullptr;
  DeviceChannel* channel_ = nullptr;
  memory::CudaDevice::Event event_ = nullptr;
  std::shared_ptr<GraphGate> gate_;                // null: nothing has been captured
  std::weak_ptr<const CapturedChannel> captured_;  // the last one
};

}  // namespace tutti::internal
