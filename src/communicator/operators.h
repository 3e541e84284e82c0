// Operators that the program makes, each for one communicator.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "base/status.h"
#include "base/types.h"
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

// Handles are numbers above those of the built-in operators; no two operators of a process ever have the same one.
// Any thread.
class Operators {
 public:
  static constexpr int kFirst = 1000;
  // kInvalidUsage when the process has used up all handles.
  Result<int> add(std::shared_ptr<const CustomOperator> made);
  // kInvalidArgument for what is no operator of this communicator.
  Result<std::shared_ptr<const CustomOperator>> find(int handle) const;
  // Operations under way keep it.
  Status remove(int handle);

 private:
  mutable Mutex mutex_;
  std::map<int, std::shared_ptr<const CustomOperator>> operators_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::internal
