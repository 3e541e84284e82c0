#include "reduction/user_operator.h"

#include <algorithm>
#include <cstring>

#include "base/types.h"

namespace tutti::internal::reduction {
namespace {

constexpr std::size_t kCopyBytes = 16 * 1024;
static_assert(kCopyBytes >= kMostElementBytes);

}  // namespace

void combine(const UserOperator& op, int datatype, std::size_t element_bytes, std::byte* target,
             const std::byte* earlier, const std::byte* later, std::size_t bytes) {
  // The function overwrites the later operand.
  if (target != earlier) {
    if (target != later) std::memcpy(target, later, bytes);
    return op.apply(earlier, target, bytes / element_bytes, datatype);
  }
  alignas(64) std::byte copy[kCopyBytes];
  const std::size_t most = sizeof copy / element_bytes * element_bytes;
  for (std::size_t at = 0; at < bytes; at += most) {
    const std::size_t size = std::min(most, bytes - at);
    std::memcpy(copy, earlier + at, size);
    std::memcpy(target + at, later + at, size);
    op.apply(copy, target + at, size / element_bytes, datatype);
  }
}

}  // namespace tutti::internal::reduction
