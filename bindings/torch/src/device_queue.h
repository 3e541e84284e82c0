// Operations on the tensors of one device: a communicator of tutti's that is bound to it, and streams of torch's.
//
// Nothing here is CUDA's own: torch's guards, streams and events of any device serve, and tutti takes the stream's
// native handle. So one build of the backend serves the CPU and CUDA.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <tutti/tutti.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "channel.h"
#include "failure.h"

namespace tutti_torch {

// As tutti names it.
std::string name_of_device(at::Device device);

// Any thread.
class DeviceQueue {
 public:
  // Takes over the communicator. ranks: what its ranks are in the group, where it is of two.
  DeviceQueue(at::Device device, tuttiComm_t comm, std::optional<PairRanks> ranks);
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;
  ~DeviceQueue() { close(); }

  // Where an operation ends, and in which stream that is.
  struct End {
    c10::Event event;
    c10::Stream stream;
  };
  // Calls tutti, and `after` for what the stream is to do behind it. `here`: in the current stream of the device; else
  // in the queue's own, behind what the current one has by now, and the caching allocator is told that `touched` are
  // used there. Throws what the call is refused for (RuntimeError), or why it has failed (DistBackendError).
  End begin(const std::string& operation, const Call& call, const std::function<void()>& after, const Tensors& touched,
            bool here);
  // Why the communicator has failed; empty: it has not.
  [[nodiscard]] std::string failure() const;
  void revoke();
  // Ends the communicator, after what is on its way.
  void close();
  [[nodiscard]] at::Device device() const { return device_; }

 private:
  [[nodiscard]] std::string told(tuttiResult_t result) const;

  const at::Device device_;
  const std::optional<PairRanks> ranks_;
  std::atomic<tuttiComm_t> comm_;
  const c10::Stream stream_;
  std::mutex order_;  // held while an operation is put into its stream
};

}  // namespace tutti_torch
