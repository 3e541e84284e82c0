// Which code CUDA devices run for a datatype and an operator, and in what blocks.
#pragma once

#include "base/types.h"
#include "reduction/element.h"

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

}  // namespace tutti::internal::reduction
