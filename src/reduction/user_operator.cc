#include "reduction/user_operator.h"

#include <algorithm>
#include <cstring>

namespace tutti::internal::reduction {

void combine(const UserOperator& op, DataType type, std::size_t element_bytes, std::byte* target,
             const std::byte* earlier, const std::byte* later, std::size_t bytes) {
  // The function writes where the later operand is.
  if (target != earlier) {
    if (target != later) std::memcpy(target, later, bytes);
    return op.apply(earlier, target, bytes / element_bytes, type);
  }
  alignas(64) std::byte copy[kMostElementBytes];
  const std::size_t most = sizeof copy / element_bytes * element_bytes;
  for (std::size_t at = 0; at < bytes; at += most) {
    const std::size_t size = std::min(most, bytes - at);
    std::memcpy(copy, earlier + at, size);
    std::memcpy(target + at, later + at, size);
    op.apply(copy, target + at, size / element_bytes, type);
  }
}

}  // namespace tutti::internal::reduction
