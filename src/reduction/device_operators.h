// From an operator that is known when the program runs to its code on CUDA devices. Only for nvcc.
#pragma once

#include "reduction/device_code.h"
#include "reduction/device_loops.h"

namespace tutti::internal::reduction {

// What the operators of a datatype are for kernels: defined, once for all of them, in device_operators_*.cu.
// produce() with an operator that has code of its own for the datatype.
template <DataType type>
__device__ void produce_with(ReduceOp op, Crew crew, std::uint32_t divisor, const std::byte* const* in, int inputs,
                             std::byte* const* out, int outputs, std::size_t count);

}  // namespace tutti::internal::reduction
