#include "base/types.h"

#include <fmt/core.h>

namespace tutti::internal {

const char* name_of(DataType type) {
  switch (type) {
    case DataType::kInt8: return "int8";
    case DataType::kUint8: return "uint8";
    case DataType::kInt32: return "int32";
    case DataType::kUint32: return "uint32";
    case DataType::kInt64: return "int64";
    case DataType::kUint64: return "uint64";
    case DataType::kFloat16: return "half";
    case DataType::kFloat32: return "float";
    case DataType::kFloat64: return "double";
    case DataType::kBfloat16: return "bfloat16";
    case DataType::kFloat8E4M3: return "f8e4m3";
    case DataType::kFloat8E5M2: return "f8e5m2";
    case DataType::kInt16: return "int16";
    case DataType::kUint16: return "uint16";
    case DataType::kComplex64: return "complex64";
    case DataType::kComplex128: return "complex128";
    case DataType::kBool: return "bool";
    case DataType::kOpaque: return "opaque";
  }
  return "unknown";
}

std::string name_of(DataType type, const Opaque& opaque) {
  return type == DataType::kOpaque ? fmt::format("opaque of {} bytes", opaque.bytes) : name_of(type);
}

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kProd: return "prod";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kAvg: return "avg";
    case ReduceOp::kBand: return "band";
    case ReduceOp::kBor: return "bor";
    case ReduceOp::kBxor: return "bxor";
    case ReduceOp::kLand: return "land";
    case ReduceOp::kLor: return "lor";
    case ReduceOp::kLxor: return "lxor";
    case ReduceOp::kPreMulSum: return "pre-multiplied sum";
    case ReduceOp::kUser: return "user function";
    case ReduceOp::kUserOrdered: return "non-commutative user function";
    case ReduceOp::kSplit: return "split";
  }
  return "unknown";
}

}  // namespace tutti::internal
