// The code of operators on CUDA devices. Included by device_operators_*.cu alone.
#pragma once

#include <utility>

#include "reduction/device_operators.h"

namespace tutti::internal::reduction {

// Not inlined: each operator of a datatype has a loop, and the kernel needs the registers of the largest one.
template <DataType type, ReduceOp op>
__device__ __noinline__ void produce_by(Crew crew, std::uint32_t divisor, const std::byte* const* in, int inputs,
                                        std::byte* const* out, int outputs, std::size_t count) {
  produce(crew, OperatorFold<type, op>{divisor}, in, inputs, out, outputs, count);
}

template <DataType type, ReduceOp op>
__device__ inline void produce_if(ReduceOp wanted, const Crew& crew, std::uint32_t divisor, const std::byte* const* in,
                                  int inputs, std::byte* const* out, int outputs, std::size_t count) {
  if constexpr (has_own_code(type, op)) {
    if (wanted == op) produce_by<type, op>(crew, divisor, in, inputs, out, outputs, count);
  }
}

template <DataType type>
__device__ void produce_with(ReduceOp op, Crew crew, std::uint32_t divisor, const std::byte* const* in, int inputs,
                             std::byte* const* out, int outputs, std::size_t count) {
  [&]<int... ops>(std::integer_sequence<int, ops...>) {
    (produce_if<type, static_cast<ReduceOp>(ops)>(op, crew, divisor, in, inputs, out, outputs, count), ...);
  }
  (std::make_integer_sequence<int, kReduceOps>{});
}

#define TUTTI_DEVICE_OPERATORS(type)                                                                       \
  template __device__ void produce_with<type>(ReduceOp, Crew, std::uint32_t, const std::byte* const*, int, \
                                              std::byte* const*, int, std::size_t)

}  // namespace tutti::internal::reduction
