// The vocabulary that every folder shares: datatypes, operators, collectives (collectives.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/collectives.h"

namespace tutti::internal {

enum class DataType : std::uint8_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8E4M3 = 10,
  kFloat8E5M2 = 11,
  kInt16 = 12,
  kUint16 = 13,
  kComplex64 = 14,   // two float32: real part, imaginary part
  kComplex128 = 15,  // two float64
  kBool = 16,        // a byte: any value but 0 is true; results are 0 or 1
  kOpaque = 17,      // user-defined (Opaque)
};
// The built-in ones.
inline constexpr int kDataTypes = 17;

// The properties of a user-defined datatype (DataType::kOpaque).
struct Opaque {
  std::int32_t handle = 0;  // the program's name for it, which may differ between ranks
  std::uint32_t bytes = 0;  // of an element, 1 to kMostElementBytes
};
inline constexpr std::size_t kMostElementBytes = 4096;
// Maximum of elements of a call: more do not fit into memory.
inline constexpr std::uint64_t kMostOpaqueCount = (std::uint64_t{1} << 48) - 1;

enum class ReduceOp : std::uint8_t {
  kSum = 0,
  kProd = 1,
  kMax = 2,
  kMin = 3,
  kAvg = 4,
  kBand = 5,
  kBor = 6,
  kBxor = 7,
  kLand = 8,
  kLor = 9,
  kLxor = 10,
  // User-defined, for one communicator (calls/operators.h):
  kPreMulSum = 11,    // the sum of the ranks' values, each multiplied by the rank's scalar
  kUser = 12,         // a user-defined function that commutes
  kUserOrdered = 13,  // a function that does not commute: the operand of the lower ranks comes first
  // Not an operator: marks the all-gathers of a split, so that no call of the program equals them.
  kSplit = 31,
};
// The built-in ones.
inline constexpr int kReduceOps = 11;
constexpr bool is_built_in(ReduceOp op) {
  return static_cast<int>(op) < kReduceOps;
}

// The public header uses NCCL's values if NCCL has the type or operator, and tutti's own values from 100.
inline constexpr int kPublicOwn = 100;
inline constexpr int kNcclDataTypes = 12;
inline constexpr int kNcclReduceOps = 5;
constexpr int public_value(DataType type) {
  const int value = static_cast<int>(type);
  return value < kNcclDataTypes ? value : kPublicOwn + value - kNcclDataTypes;
}
constexpr int public_value(ReduceOp op) {
  const int value = static_cast<int>(op);
  return value < kNcclReduceOps ? value : kPublicOwn + value - kNcclReduceOps;
}

// Bytes of one element; 0 for an opaque one, and for a value outside the enumeration.
constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kFloat8E4M3:
    case DataType::kFloat8E5M2:
    case DataType::kBool: return 1;
    case DataType::kInt16:
    case DataType::kUint16:
    case DataType::kFloat16:
    case DataType::kBfloat16: return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32: return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
    case DataType::kComplex64: return 8;
    case DataType::kComplex128: return 16;
    case DataType::kOpaque: break;
  }
  return 0;
}
constexpr std::size_t size_of(DataType type, const Opaque& opaque) {
  return type == DataType::kOpaque ? opaque.bytes : size_of(type);
}

constexpr bool is_complex(DataType type) {
  return type == DataType::kComplex64 || type == DataType::kComplex128;
}
constexpr bool is_float(DataType type) {
  return type >= DataType::kFloat16 && type <= DataType::kFloat8E5M2;
}
constexpr bool is_logical(ReduceOp op) {
  return op >= ReduceOp::kLand && op <= ReduceOp::kLxor;
}
// Whether the operator is defined for this type. Complex numbers have no order, floats no bitwise operators, and
// booleans no average; only user-defined functions combine opaque elements. For booleans sum, max, bor and lor are the
// same, as are prod, min and the two ands. REQUIRES: values of the enumerations.
constexpr bool supports(DataType type, ReduceOp op) {
  if (type == DataType::kOpaque) return op == ReduceOp::kUser || op == ReduceOp::kUserOrdered;
  if (!is_built_in(op)) return op != ReduceOp::kPreMulSum || type != DataType::kBool;
  if (is_complex(type)) return op == ReduceOp::kSum || op == ReduceOp::kProd || op == ReduceOp::kAvg;
  if (is_float(type)) return op <= ReduceOp::kAvg;
  return type != DataType::kBool || op != ReduceOp::kAvg;
}

// Lower-case names, as nccl-tests prints them if it has them: "float", "half", "sum", "land"; "unknown" outside the
// enumeration.
const char* name_of(DataType type);
const char* name_of(ReduceOp op);
// "opaque of 12 bytes", else as above.
std::string name_of(DataType type, const Opaque& opaque);

}  // namespace tutti::internal
