// Runs flat programs on a CUDA device: a thread block for each strand of each channel.
#pragma once

#include <cstdint>

#include "base/types.h"
#include "executor/strand.h"
#include "reduction/device_reduction.h"

namespace tutti::internal::executor {

// What host and device tell each other of a run: in pinned memory, written by one side each.
struct DeviceControl {
  std::uint32_t stop = 0;      // by the host, not 0: the run ends where it is
  std::uint32_t mismatch = 0;  // by the device: a peer has sent what is not of this operation
};

struct DeviceRun {
  const FlatCall* calls = nullptr;  // by channel; like all that they point to, in memory that the device reads
  unsigned channels = 1;
  unsigned strands = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::uint32_t divisor = 0;         // of an average
  DeviceControl* control = nullptr;  // as the device sees it
};

// Queued on a stream of the current device: a cudaError_t, 0 if it is. REQUIRES: as many thread blocks as this run and
// those of the ranks that it waits for have are resident together (most_resident_strands()).
[[nodiscard]] int run_on_device(const DeviceRun& run, reduction::DeviceStream stream);

// Of all runs of this datatype on the current device together; 0 if that cannot be found out.
[[nodiscard]] unsigned most_resident_strands(DataType type);

}  // namespace tutti::internal::executor
