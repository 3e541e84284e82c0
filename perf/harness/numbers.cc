#include "numbers.h"

#include <cmath>
#include <cstring>

namespace tutti::internal::perf {

DataType part_of(DataType type) {
  if (type == DataType::kComplex64) return DataType::kFloat32;
  return type == DataType::kComplex128 ? DataType::kFloat64 : type;
}

bool is_signed_integer(DataType type) {
  return type == DataType::kInt8 || type == DataType::kInt16 || type == DataType::kInt32 || type == DataType::kInt64;
}

FloatFormat float_format(DataType type) {
  switch (type) {
    case DataType::kFloat16: return {5, 10, true};
    case DataType::kBfloat16: return {8, 7, true};
    case DataType::kFloat64: return {11, 52, true};
    case DataType::kFloat8E4M3: return {4, 3, false};
    case DataType::kFloat8E5M2: return {5, 2, true};
    default: return {8, 23, true};
  }
}

std::uint64_t load_bits(DataType type, const std::byte* element) {
  std::uint64_t bits = 0;
  for (std::size_t i = size_of(type); i-- > 0;) bits = bits << 8 | std::to_integer<std::uint64_t>(element[i]);
  return bits;
}

void store_bits(DataType type, std::uint64_t bits, std::byte* element) {
  for (std::size_t i = 0; i < size_of(type); ++i) element[i] = static_cast<std::byte>(bits >> (8 * i) & 0xFF);
}

double decode(DataType type, std::uint64_t bits) {
  const FloatFormat format = float_format(type);
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << format.mantissa_bits) - 1);
  const int top = (1 << format.exponent_bits) - 1;
  const int exponent = static_cast<int>(bits >> format.mantissa_bits) & top;
  const bool negative = (bits >> (format.mantissa_bits + format.exponent_bits) & 1) != 0;
  const std::uint64_t full = (std::uint64_t{1} << format.mantissa_bits) - 1;
  double value = 0;
  if (exponent == top && format.has_infinity) {
    value = mantissa == 0 ? HUGE_VAL : std::nan("");
  } else if (exponent == top && mantissa == full) {
    value = std::nan("");
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<double>(mantissa), format.min_exponent() - format.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<double>(mantissa | (full + 1)), exponent - format.bias() - format.mantissa_bits);
  }
  return negative ? -value : value;
}

std::uint64_t encode(DataType type, double value) {
  const FloatFormat format = float_format(type);
  const int width = format.exponent_bits + format.mantissa_bits;
  const std::uint64_t sign = std::signbit(value) ? std::uint64_t{1} << width : 0;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  // The largest finite number: all ones below the first pattern that is not a number.
  const std::uint64_t infinity = ((std::uint64_t{1} << format.exponent_bits) - 1) << format.mantissa_bits;
  const std::uint64_t largest = format.has_infinity ? infinity - 1 : (std::uint64_t{1} << width) - 2;
  int exponent = std::ilogb(magnitude);
  if (exponent < format.min_exponent()) exponent = format.min_exponent();
  // Units in the last place; nearbyint rounds to even in the default rounding mode. A carry into the
  // next exponent comes out right because exponent and mantissa are adjacent.
  const auto units = static_cast<std::uint64_t>(std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent)));
  const auto steps = static_cast<std::uint64_t>(exponent - format.min_exponent());
  const std::uint64_t bits = units + (steps << format.mantissa_bits);
  return sign | (exponent > format.max_exponent() || bits > largest ? largest : bits);
}

std::int64_t as_signed(DataType type, std::uint64_t bits) {
  switch (type) {
    case DataType::kInt8: return static_cast<std::int8_t>(bits);
    case DataType::kInt16: return static_cast<std::int16_t>(bits);
    case DataType::kInt32: return static_cast<std::int32_t>(bits);
    default: return static_cast<std::int64_t>(bits);
  }
}

}  // namespace tutti::internal::perf
