// Checks that a device can access the buffers of a batch.
#pragma once

#include "base/status.h"
#include "calls/batch.h"
#include "memory/cuda_device.h"

namespace tutti::internal {

// kInvalidArgument: a buffer, or with varying counts a block, begins at an address that is not memory known to the
// driver. REQUIRES: the calls have been checked; the device is current.
Status check_device_buffers(const Batch& batch, int rank, int ranks, const memory::CudaDevice& device);

}  // namespace tutti::internal
