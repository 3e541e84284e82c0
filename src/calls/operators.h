// Operators that the program makes, each for one communicator.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "base/types.h"
#include "calls/made_table.h"
#include "reduction/user_operator.h"

namespace tutti::internal {

// Does not change once made.
struct CustomOperator {
  ReduceOp kind = ReduceOp::kUser;
  std::unique_ptr<const reduction::UserOperator> user;  // null: kPreMulSum

  // Of kPreMulSum, which is for one datatype.
  DataType type = DataType::kUint8;
  std::array<std::byte, 16> value{};
  const void* scalar = nullptr;  // the program's, read when an operation runs; null: `value` it is
  [[nodiscard]] const void* factor() const { return scalar != nullptr ? scalar : value.data(); }
};

}  // namespace tutti::internal
