// Scalar conversions between float32 and the 16- and 8-bit floats. All are usable in constant expressions,
// give the same result in every rounding-independent way (no subnormal float32 is ever an intermediate, so
// flush-to-zero modes of the processor do not matter), and round to nearest, ties to even, once.
//
// Formats: IEEE 754-2019 binary16; bfloat16 (the upper half of binary32); OCP 8-bit Floating Point
// Specification, revision 1.0, E4M3 and E5M2.
#pragma once

#include <bit>
#include <cstdint>

namespace tutti::internal::reduction {

// A binary format with one sign bit, described by the codes of non-negative values ("magnitudes").
struct SmallFormat {
  int bits;
  int mantissa_bits;
  int bias;
  // Magnitudes above it are special: infinity or NaN.
  std::uint32_t largest_finite;
  // The result for a value that rounds above largest_finite, and for infinity: largest_finite if the format saturates,
  // infinity if it does not.
  std::uint32_t overflow;
  // The code of every NaN: all bits set.
  constexpr std::uint32_t one_nan() const { return (1u << bits) - 1; }
  bool operator==(const SmallFormat&) const = default;
};

inline constexpr SmallFormat kHalfFormat{16, 10, 15, 0x7bff, 0x7c00};
inline constexpr SmallFormat kE4M3Format{8, 3, 7, 0x7e, 0x7e};
inline constexpr SmallFormat kE5M2Format{8, 2, 15, 0x7b, 0x7b};

inline constexpr std::uint32_t kFloatInfinityBits = 0x7f800000u;
inline constexpr std::uint32_t kFloatQuietBit = 0x00400000u;
inline constexpr std::uint32_t kFloatSignBit = 0x80000000u;
inline constexpr std::uint16_t kBfloat16Nan = 0xffff;

// The bits of 2^exponent as a float32; -126 <= exponent <= 127.
constexpr std::uint32_t power_of_two_bits(int exponent) {
  return static_cast<std::uint32_t>(exponent + 127) << 23;
}

// Exponent of the smallest positive value of a format.
constexpr int smallest_exponent(const SmallFormat& f) {
  return 1 - f.bias - f.mantissa_bits;
}

// Exact. Codes above largest_finite become infinity (mantissa 0, formats that have it) or a quiet NaN.
template <SmallFormat f>
constexpr float widen(std::uint32_t code) {
  constexpr int kShift = 23 - f.mantissa_bits;
  const std::uint32_t sign = (code << (32 - f.bits)) & kFloatSignBit;
  const std::uint32_t magnitude = code & ((1u << (f.bits - 1)) - 1);
  std::uint32_t bits = 0;
  if (magnitude > f.largest_finite) {
    const std::uint32_t mantissa = magnitude & ((1u << f.mantissa_bits) - 1);
    bits = kFloatInfinityBits | (mantissa == 0 ? 0 : kFloatQuietBit | (mantissa << kShift));
  } else if (magnitude < (1u << f.mantissa_bits)) {  // zero or subnormal
    bits = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) *
                                        std::bit_cast<float>(power_of_two_bits(smallest_exponent(f))));
  } else {
    bits = (magnitude << kShift) + (static_cast<std::uint32_t>(127 - f.bias) << 23);
  }
  return std::bit_cast<float>(bits | sign);
}

// Rounds to nearest even. Overflow and infinity become f.overflow with their sign, every NaN becomes f.one_nan().
template <SmallFormat f>
constexpr std::uint32_t narrow(float value) {
  constexpr int kShift = 23 - f.mantissa_bits;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & kFloatSignBit) >> (32 - f.bits);
  const std::uint32_t magnitude = bits & ~kFloatSignBit;
  if (magnitude > kFloatInfinityBits) return f.one_nan();
  std::uint32_t code = 0;
  if (magnitude < power_of_two_bits(1 - f.bias)) {
    // Adding this power of two moves the format's last place to the float's, so that the processor rounds.
    constexpr std::uint32_t kMagicBits = power_of_two_bits(smallest_exponent(f) + 23);
    const float rounded = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kMagicBits);
    code = std::bit_cast<std::uint32_t>(rounded) - kMagicBits;
  } else {
    // Half a last place, less one bit when the last place is even; a carry moves into the exponent.
    const std::uint32_t even = (magnitude >> kShift) & 1u;
    code = (magnitude + even + ((1u << (kShift - 1)) - 1) - (static_cast<std::uint32_t>(127 - f.bias) << 23)) >> kShift;
  }
  return sign | (code > f.largest_finite ? f.overflow : code);
}

constexpr float half_to_float(std::uint16_t code) {
  return widen<kHalfFormat>(code);
}
constexpr std::uint16_t float_to_half(float value) {
  return static_cast<std::uint16_t>(narrow<kHalfFormat>(value));
}

constexpr float e4m3_to_float(std::uint8_t code) {
  return widen<kE4M3Format>(code);
}
constexpr std::uint8_t float_to_e4m3(float value) {
  return static_cast<std::uint8_t>(narrow<kE4M3Format>(value));
}

constexpr float e5m2_to_float(std::uint8_t code) {
  return widen<kE5M2Format>(code);
}
constexpr std::uint8_t float_to_e5m2(float value) {
  return static_cast<std::uint8_t>(narrow<kE5M2Format>(value));
}

constexpr float bfloat16_to_float(std::uint16_t code) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16);
}
// Overflow becomes infinity, every NaN becomes kBfloat16Nan.
constexpr std::uint16_t float_to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & ~kFloatSignBit) > kFloatInfinityBits) return kBfloat16Nan;
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace tutti::internal::reduction
