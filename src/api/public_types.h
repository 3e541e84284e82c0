// Conversion between the datatypes and operators of the C API and the internal ones.
#pragma once

#include <cstdint>

#include "base/types.h"
#include "calls/made_table.h"
#include "tutti/tutti.h"

namespace tutti::internal::api {

// The inverse of public_value(). For an invalid value, the result is also invalid: check_types() refuses it.
constexpr std::uint8_t from_public(unsigned value, unsigned nccl_values, unsigned values) {
  if (value < nccl_values) return static_cast<std::uint8_t>(value);
  const unsigned own = value - kPublicOwn;  // wraps to a large one below
  return static_cast<std::uint8_t>(own < values - nccl_values ? own + nccl_values : UINT8_MAX);
}
// User-defined datatypes are opaque.
constexpr DataType type_of(tuttiDataType_t type) {
  if (is_made(static_cast<int>(type))) return DataType::kOpaque;
  return static_cast<DataType>(from_public(static_cast<unsigned>(type), kNcclDataTypes, kDataTypes));
}
constexpr ReduceOp op_of(tuttiRedOp_t op) {
  return static_cast<ReduceOp>(from_public(static_cast<unsigned>(op), kNcclReduceOps, kReduceOps));
}
static_assert(public_value(DataType::kInt16) == tuttiInt16 && public_value(DataType::kBool) == tuttiBool &&
              public_value(ReduceOp::kBand) == tuttiBand && public_value(ReduceOp::kLxor) == tuttiLxor);

}  // namespace tutti::internal::api
