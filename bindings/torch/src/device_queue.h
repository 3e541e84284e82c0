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
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "channel.h"
#include "failure.h"
#include "packing.h"
#include "recorder.h"

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
  ~DeviceQueue();

  // The event at the end of an operation, and its stream.
  struct End {
    std::shared_ptr<c10::Event> event;
    c10::Stream stream;
    bool captured;  // in a graph, which runs later and any number of times: its end is not reported
    // Throws what torch says of a device that has failed.
    [[nodiscard]] bool has_come() const;
  };
  // Calls tutti, with the copies before and after it in the same stream. `here`: in the device's current stream;
  // otherwise in the queue's own stream, after the work that the current one has now, and the queue records for the
  // caching allocator that this stream uses `touched`. Throws RuntimeError if the call is refused, DistBackendError if
  // it fails. `entries` end with the operation.
  End begin(const std::string& operation, const Call& call, const Packing& packing, const Tensors& touched, bool here,
            const Recorder::Entries& entries);
  // Why the communicator has failed, for the caller of that operation; counts as reported. Null: it has not failed.
  [[nodiscard]] std::exception_ptr error(const std::string& operation);
  [[nodiscard]] bool has_failed() const { return !failure().empty(); }
  // Looks which operations have ended; all have if the device has failed. True: all.
  bool settle();
  // Those of all queues of the process.
  static void settle_all();
  void revoke();
  // Ends the communicator, after what is on its way. Warns of a failure that no caller got.
  void close();
  [[nodiscard]] at::Device device() const { return device_; }

 private:
  struct Pending {
    End end;
    Recorder::Entries entries;
  };
  [[nodiscard]] std::string text_of(tuttiResult_t result) const;
  // Empty: the communicator has not failed.
  [[nodiscard]] std::string failure() const;
  End put(const std::string& operation, const Call& call, const Packing& packing, const Tensors& touched, bool here);

  const at::Device device_;
  const std::optional<PairRanks> ranks_;
  std::atomic<tuttiComm_t> comm_;
  const c10::Stream stream_;
  std::mutex order_;               // held while an operation is put into its stream
  std::atomic<bool> told_{false};  // of the failure
  mutable std::mutex ended_mutex_;
  std::string ended_why_;  // of a communicator that has failed, once it has ended
  std::mutex pending_mutex_;
  std::deque<Pending> pending_;  // that have not ended, and some that have
};

}  // namespace tutti_torch
