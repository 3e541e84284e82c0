// Maps a run-time operator to its code on CUDA devices. Only for nvcc.
#pragma once

#include "reduction/device_code.h"
#include "reduction/device_loops.h"

namespace tutti::internal::reduction {

// produce() with an operator that has its own code for the datatype; defined for all kernels in device_operators_*.cu.
template <DataType type>
__device__ void produce_with(ReduceOp op, Crew crew, std::uint32_t divisor, const std::byte* const* in, int inputs,
                             std::byte* const* out, int outputs, std::size_t count);

}  // namespace tutti::internal::reduction
