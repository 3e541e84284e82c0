// User-defined operators, each for one communicator.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "base/types.h"
#include "calls/made_table.h"
#include "reduction/user_operator.h"

namespace tutti::internal {

// Immutable.
struct CustomOperator {
  ReduceOp kind = ReduceOp::kUser;
  std::unique_ptr<const reduction::UserOperator> user;  // null: kPreMulSum

  // of kPreMulSum, which is for one datatype
  DataType type = DataType::kUint8;
  std::array<std::byte, 16> value{};
  const void* scalar = nullptr;  // the program's scalar, read when an operation runs; null: `value` is the scalar
  [[nodiscard]] const void* factor() const { return scalar != nullptr ? scalar : value.data(); }
};

}  // namespace tutti::internal
