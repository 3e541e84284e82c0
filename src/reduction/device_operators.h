// From an operator that is known when the program runs to its code on CUDA devices. Only for nvcc.
#pragma once

#include "reduction/device_loops.h"

namespace tutti::internal::reduction {

// The threads of a block that runs this code; its registers must do for so many.
inline constexpr unsigned kDeviceThreads = 512;

// Whether an operator has code of its own for a datatype: what has the same bits is done by the code of another one,
// see own_code().
constexpr bool has_own_code(DataType type, ReduceOp op) {
  const bool of_sign = op == ReduceOp::kMax || op == ReduceOp::kMin || op == ReduceOp::kAvg;
  switch (type) {
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32:
    case DataType::kInt64: return of_sign;
    case DataType::kBool: return is_logical(op);
    default: return supports(type, op);
  }
}

struct TypedOperator {
  DataType type;
  ReduceOp op;
};

// REQUIRES: supports(type, op). The result has code of its own.
constexpr TypedOperator own_code(DataType type, ReduceOp op) {
  if (type == DataType::kBool) return {type, logical_of(op)};
  if (has_own_code(type, op)) return {type, op};
  switch (type) {
    case DataType::kInt8: return {DataType::kUint8, op};
    case DataType::kInt16: return {DataType::kUint16, op};
    case DataType::kInt32: return {DataType::kUint32, op};
    default: return {DataType::kUint64, op};
  }
}

// What the operators of a datatype are for kernels: defined, once for all of them, in device_operators_*.cu.
// produce() with an operator that has code of its own for the datatype.
template <DataType type>
__device__ void produce_with(ReduceOp op, Crew crew, std::uint32_t divisor, const std::byte* const* in, int inputs,
                             std::byte* const* out, int outputs, std::size_t count);

}  // namespace tutti::internal::reduction
