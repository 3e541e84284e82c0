// The memory of a caller's buffer, for operations.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::internal::memory {

// User memory, as bound for one operation. `region` is the id of the region of tuttiMemAlloc that contains all of it
// (0: none), `region_offset` that of `base` in the region. If the buffer holds only a part of the vector, `base` may be
// before the buffer and the region. Then `region_offset` is negative modulo 2^64, but the offset of an existing byte,
// region_offset + n with n >= begin, is correct, because unsigned addition wraps.
struct Source {
  const std::byte* base = nullptr;
  std::size_t size = 0;
  std::uint64_t region = 0;
  std::size_t region_offset = 0;
  std::size_t begin = 0;  // the buffer is only from base + begin to base + size
};

}  // namespace tutti::internal::memory
