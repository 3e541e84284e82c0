// Numbers of every datatype, for checking results. Written apart from the library's own conversions on
// purpose: a check that shares code with what it checks proves little.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace tutti::internal::perf {

// A floating-point format: sign, exponent, mantissa, from the high bit down.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // false: the largest exponent holds numbers too (OCP FP8 E4M3)

  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  // Integers up to 2^significand_bits() are exact.
  [[nodiscard]] int significand_bits() const { return mantissa_bits + 1; }
  // Exponent of the smallest normal number.
  [[nodiscard]] int min_exponent() const { return 1 - bias(); }
  // 2^max_exponent() is finite.
  [[nodiscard]] int max_exponent() const { return bias() + (has_infinity ? 0 : 1); }
};

// A complex number has two parts, which are numbers of the float type given; all others are one part themselves.
DataType part_of(DataType type);
bool is_signed_integer(DataType type);
// REQUIRES: is_float(type).
FloatFormat float_format(DataType type);

// The element's bits, in the low end.
std::uint64_t load_bits(DataType type, const std::byte* element);
void store_bits(DataType type, std::uint64_t bits, std::byte* element);

// REQUIRES: is_float(type).
double decode(DataType type, std::uint64_t bits);
// Rounds to nearest, ties to even; overflow gives the largest finite number. REQUIRES: is_float(type),
// value is finite.
std::uint64_t encode(DataType type, double value);

// Low `8 * size_of(type)` bits as a number of that signedness. REQUIRES: type is an integer.
std::int64_t as_signed(DataType type, std::uint64_t bits);

}  // namespace tutti::internal::perf
