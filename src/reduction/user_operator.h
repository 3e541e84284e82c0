// Combines two vectors with a user-defined operator function.
#pragma once

#include <cstddef>

namespace tutti::internal::reduction {

class UserOperator {
 public:
  UserOperator() = default;
  UserOperator(const UserOperator&) = delete;
  UserOperator& operator=(const UserOperator&) = delete;
  virtual ~UserOperator() = default;
  // inout[i] = in[i] op inout[i], i < count elements of `datatype` (the program's handle), with any alignment; the two
  // do not overlap. May throw.
  virtual void apply(const std::byte* in, std::byte* inout, std::size_t count, int datatype) const = 0;
};

// target[i] = earlier[i] op later[i]. target may equal one of the two exactly; other overlap is not allowed.
// `bytes`: whole elements, of element_bytes each, at most kMostElementBytes.
void combine(const UserOperator& op, int datatype, std::size_t element_bytes, std::byte* target,
             const std::byte* earlier, const std::byte* later, std::size_t bytes);

}  // namespace tutti::internal::reduction
