// Operators on elements of any size, for user-defined datatypes.
#pragma once

#include <cstddef>

namespace tutti::internal::test {

inline unsigned number(std::byte b) {
  return static_cast<unsigned>(b);
}
inline std::byte low(unsigned value) {
  return static_cast<std::byte>(value & 255);
}

// An element is a map x -> a x + b of vectors: a its first byte, b the others. One map after another is associative,
// but does not commute; each byte of the result needs the first of both.
inline void compose(const std::byte* earlier, const std::byte* later, std::byte* result, std::size_t size) {
  const unsigned a = number(later[0]);
  const unsigned first = number(earlier[0]) * a;
  for (std::size_t i = 1; i < size; ++i) result[i] = low(number(earlier[i]) * a + number(later[i]));
  result[0] = low(first);
}
// An element is one integer, its lowest byte first: the same result as the library's sum of unsigned ones.
inline void add(const std::byte* x, const std::byte* y, std::byte* sum, std::size_t size) {
  unsigned carry = 0;
  for (std::size_t i = 0; i < size; ++i) {
    carry += number(x[i]) + number(y[i]);
    sum[i] = low(carry);
    carry >>= 8;
  }
}

}  // namespace tutti::internal::test
