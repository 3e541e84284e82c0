// The code that CUDA devices run for a datatype and an operator, and its block size.
#pragma once

#include "base/types.h"
#include "reduction/element.h"

namespace tutti::internal::reduction {

// The number of threads in a block for this code; its registers must suffice for them.
inline constexpr unsigned kDeviceThreads = 512;

// Whether an operator has its own code for a datatype: operators with the same results share code, see own_code().
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

}  // namespace tutti::internal::reduction
