// Direct collectives on a CUDA device (direct.h): the library's code for devices, and its launches.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "device/direct.h"
#include "memory/cuda_device.h"

namespace tutti::internal {

// Threads: any. Functions with a stream argument must be called while the device is the thread's current one.
class DirectKernels {
 public:
  // The device's kernels, which are never destroyed. Null: this library has no code for such a device. An error if the
  // device fails.
  static Result<const DirectKernels*> of(const memory::CudaDevice& device);
  DirectKernels(const DirectKernels&) = delete;
  DirectKernels& operator=(const DirectKernels&) = delete;

  // Puts the call into the stream, with this many columns of thread blocks; 0: as many as are useful. In a rendezvous
  // all ranks have the same number, and the blocks of all are resident together.
  Status launch(const DirectCall& call, memory::CudaDevice::Stream stream, unsigned columns = 0) const;
  // Thread blocks that can run on the device at the same time.
  [[nodiscard]] unsigned most_resident_blocks() const { return most_resident_; }
  // The number of columns that are useful for each rank.
  [[nodiscard]] unsigned useful_columns(const DirectCall& call) const;

 private:
  explicit DirectKernels(const memory::CudaDevice& device) : device_(device) {}
  static Result<const DirectKernels*> open(const memory::CudaDevice& device);

  const memory::CudaDevice& device_;
  memory::CudaDriver::Function function_ = nullptr;
  unsigned most_resident_ = 0;
  unsigned multiprocessors_ = 0;
};

}  // namespace tutti::internal
