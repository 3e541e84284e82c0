// The scalar conversions, compared with a slow, exact model: a sorted list of all the format's values, in float64.
#include "reduction/small_float.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "catch_compat.h"

namespace tutti::internal::reduction {
namespace {

// A format by its definition: value = (-1)^s * 2^(e - bias) * 1.m, or 2^(1 - bias) * 0.m for e = 0.
struct Model {
  int exponent_bits, mantissa_bits, bias;
  bool infinity;               // the topmost exponent is infinity and NaN; otherwise only the topmost code is NaN
  bool saturates;              // overflow becomes the largest finite value
  std::vector<double> values;  // of the non-negative finite codes, ascending; values[code]

  Model(int e, int m, int b, bool has_infinity, bool saturating)
      : exponent_bits(e), mantissa_bits(m), bias(b), infinity(has_infinity), saturates(saturating) {
    const int codes = 1 << (e + m);
    const int finite = infinity ? codes - (1 << m) : codes - 1;
    for (int code = 0; code <= finite; ++code) {  // one more than the finite ones: overflow begins there
      const int exponent = code >> m, mantissa = code & ((1 << m) - 1);
      values.push_back(exponent == 0 ? std::ldexp(mantissa, 1 - bias - m)
                                     : std::ldexp((1 << m) + mantissa, exponent - bias - m));
    }
  }
  std::uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  std::uint32_t first_above_finite() const { return static_cast<std::uint32_t>(values.size()) - 1; }
  bool is_nan(std::uint32_t code) const {
    const std::uint32_t magnitude = code & (sign_bit() - 1);
    return infinity ? magnitude > first_above_finite() : magnitude == first_above_finite();
  }

  // The code nearest to a value that is not NaN.
  std::uint32_t nearest(double value) const {
    const std::uint32_t sign = std::signbit(value) ? sign_bit() : 0;
    const double magnitude = std::fabs(value);
    std::uint32_t code = first_above_finite();
    if (magnitude < values.back()) {
      const auto above = std::upper_bound(values.begin(), values.end(), magnitude);
      code = static_cast<std::uint32_t>(above - values.begin()) - 1;
      const double down = magnitude - values[code], up = values[code + 1] - magnitude;
      if (down > up || (down == up && code % 2 == 1)) ++code;
    }
    if (code == first_above_finite() && saturates) --code;
    return sign | code;
  }
};

// Every code's value; then floats around every value and every midpoint, and random ones, to codes.
template <class Widen, class Narrow>
void check_format(const Model& model, Widen widen_code, Narrow narrow_value) {
  int wrong = 0;
  for (std::uint32_t code = 0; code < 2 * model.sign_bit(); ++code) {
    const float value = widen_code(code);
    const std::uint32_t magnitude = code & (model.sign_bit() - 1);
    if (model.is_nan(code)) {
      wrong += !(std::isnan(value) && model.is_nan(narrow_value(value)));
    } else if (magnitude == model.first_above_finite()) {
      wrong += !(std::isinf(value) && std::signbit(value) == (code != magnitude));
      wrong += narrow_value(value) != (model.saturates ? code - 1 : code);
    } else {
      wrong += static_cast<double>(std::fabs(value)) != model.values[magnitude];
      wrong += std::signbit(value) != (code != magnitude);
      wrong += narrow_value(value) != code;
    }
  }
  CHECK(wrong == 0);

  std::vector<float> samples = {0.0f, 1e-45f, 1e-38f, std::numeric_limits<float>::max(),
                                std::numeric_limits<float>::infinity()};
  for (std::size_t i = 0; i + 1 < model.values.size(); ++i) {
    for (const double exact : {model.values[i], (model.values[i] + model.values[i + 1]) / 2}) {
      const float value = static_cast<float>(exact);
      samples.insert(samples.end(), {value, std::nextafter(value, INFINITY), std::nextafter(value, -INFINITY)});
    }
  }
  std::mt19937 random(7);
  for (int i = 0; i < 300000; ++i) samples.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  wrong = 0;
  for (const float value : samples) {
    if (std::isnan(value)) {
      wrong += !model.is_nan(narrow_value(value));
    } else {
      wrong += narrow_value(value) != model.nearest(value);
      wrong += narrow_value(-value) != model.nearest(-value);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("float16 conversions are exact") {
  check_format(
      Model(5, 10, 15, true, false), [](std::uint32_t c) { return half_to_float(static_cast<std::uint16_t>(c)); },
      [](float v) -> std::uint32_t { return float_to_half(v); });
  STATIC_REQUIRE(float_to_half(65519.0f) == 0x7bff);
  STATIC_REQUIRE(float_to_half(65520.0f) == 0x7c00);
}

TEST_CASE("bfloat16 conversions are exact") {
  check_format(
      Model(8, 7, 127, true, false), [](std::uint32_t c) { return bfloat16_to_float(static_cast<std::uint16_t>(c)); },
      [](float v) -> std::uint32_t { return float_to_bfloat16(v); });
  // A NaN whose set mantissa bits would all be cut off becomes a NaN, like every NaN: the one with all bits set.
  STATIC_REQUIRE(float_to_bfloat16(std::bit_cast<float>(0x7f800001u)) == 0xffff);
  STATIC_REQUIRE(float_to_bfloat16(std::bit_cast<float>(0xffffffffu)) == 0xffff);
}

TEST_CASE("float8 E4M3 conversions are exact and saturate") {
  check_format(
      Model(4, 3, 7, false, true), [](std::uint32_t c) { return e4m3_to_float(static_cast<std::uint8_t>(c)); },
      [](float v) -> std::uint32_t { return float_to_e4m3(v); });
  STATIC_REQUIRE(e4m3_to_float(0x7e) == 448.0f);
  STATIC_REQUIRE(float_to_e4m3(1e30f) == 0x7e);
  STATIC_REQUIRE(float_to_e4m3(-1e30f) == 0xfe);
}

TEST_CASE("float8 E5M2 conversions are exact and saturate") {
  check_format(
      Model(5, 2, 15, true, true), [](std::uint32_t c) { return e5m2_to_float(static_cast<std::uint8_t>(c)); },
      [](float v) -> std::uint32_t { return float_to_e5m2(v); });
  STATIC_REQUIRE(e5m2_to_float(0x7b) == 57344.0f);
  STATIC_REQUIRE(float_to_e5m2(std::numeric_limits<float>::infinity()) == 0x7b);
}

}  // namespace
}  // namespace tutti::internal::reduction
