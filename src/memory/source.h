// Memory of the caller as operations name it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::internal::memory {

// User memory, as bound for one operation. `region` is the id of the region of tuttiMemAlloc that contains all of it
// (0: none), `region_offset` that of `base` in the region. Where the buffer holds a part of the vector alone, `base`
// lies before it, and so before the region: `region_offset` is then less than 0, modulo 2^64, and the offset of a byte
// that is there, region_offset + n with n >= begin, comes out right, since unsigned addition wraps.
struct Source {
  const std::byte* base = nullptr;
  std::size_t size = 0;
  std::uint64_t region = 0;
  std::size_t region_offset = 0;
  std::size_t begin = 0;  // memory is there only from base + begin to base + size
};

}  // namespace tutti::internal::memory
