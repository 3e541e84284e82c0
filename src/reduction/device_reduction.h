// Element-wise combination of vectors in the memory of a CUDA device: the host's datatypes and operators (reduction.h),
// with the same bits as on the host if the inputs are combined in the same order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace tutti::internal::reduction {

using DeviceStream = struct CUstream_st*;  // cudaStream_t

inline constexpr int kMostDeviceInputs = 8;
inline constexpr int kMostDeviceOutputs = 8;

struct DeviceReduction {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::uint32_t divisor = 0;  // of an average; 0: not divided yet
  int inputs = 2;             // 1: copies
  int outputs = 1;
  std::array<const std::byte*, kMostDeviceInputs> in{};
  std::array<std::byte*, kMostDeviceOutputs> out{};
  std::size_t count = 0;  // elements
};

// Every output is in[0] op in[1] op ..., from the left. Outputs may be inputs; other overlap is not allowed. Queues the
// work on the stream of the current device. Returns a cudaError_t, 0 on success. REQUIRES: supports(type, op);
// addresses are multiples of the element's size.
[[nodiscard]] int reduce_on_device(const DeviceReduction& reduction, DeviceStream stream);

}  // namespace tutti::internal::reduction
