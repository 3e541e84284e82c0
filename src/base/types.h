// The vocabulary that every folder shares: datatypes, operators, collectives (collectives.h). Values of DataType and
// ReduceOp equal those of the public header (and NCCL's).
#pragma once

#include <cstddef>
#include <cstdint>

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
};
inline constexpr int kDataTypes = 12;

enum class ReduceOp : std::uint8_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };
inline constexpr int kReduceOps = 5;

// Bytes of one element; 0 for a value outside the enumeration.
constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kFloat8E4M3:
    case DataType::kFloat8E5M2: return 1;
    case DataType::kFloat16:
    case DataType::kBfloat16: return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32: return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64: return 8;
  }
  return 0;
}

// Lower-case names as nccl-tests prints them: "float", "half", "sum" and so on; "unknown" outside the enumeration.
const char* name_of(DataType type);
const char* name_of(ReduceOp op);

}  // namespace tutti::internal
