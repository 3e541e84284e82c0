// Whether a device reaches the buffers of what was called.
#pragma once

#include "base/status.h"
#include "calls/batch.h"
#include "memory/cuda_device.h"

namespace tutti::internal {

// kInvalidArgument: a buffer, or with varying counts a block, begins where the driver knows of no memory.
// REQUIRES: the calls have been checked; the device is current.
Status check_device_buffers(const Batch& batch, int rank, int ranks, const memory::CudaDevice& device);

}  // namespace tutti::internal
