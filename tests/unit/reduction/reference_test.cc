// The reference, compared with values written by hand.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "catch_compat.h"
#include "reduction/element.h"
#include "reference/reduction.h"

namespace tutti::internal::reduction {
namespace {

template <class T>
T combined(DataType type, ReduceOp op, T a, T b) {
  T result{};
  combine_reference(type, op, reinterpret_cast<std::byte*>(&result), reinterpret_cast<const std::byte*>(&a),
                    reinterpret_cast<const std::byte*>(&b), 1);
  return result;
}

template <class T>
T divided(DataType type, T value, std::size_t divisor) {
  finish_reference(type, reinterpret_cast<std::byte*>(&value), 1, divisor);
  return value;
}

using enum ReduceOp;

TEST_CASE("integer sums and products wrap") {
  CHECK(combined<std::int8_t>(DataType::kInt8, kSum, 100, 100) == -56);
  CHECK(combined<std::int8_t>(DataType::kInt8, kAvg, 100, 100) == -56);
  CHECK(combined<std::int8_t>(DataType::kInt8, kProd, -128, -1) == -128);
  CHECK(combined<std::uint8_t>(DataType::kUint8, kProd, 255, 255) == 1);
  CHECK(combined<std::int32_t>(DataType::kInt32, kSum, INT32_MAX, 1) == INT32_MIN);
  CHECK(combined<std::uint32_t>(DataType::kUint32, kProd, 1u << 31, 3) == 1u << 31);
  CHECK(combined<std::int64_t>(DataType::kInt64, kSum, INT64_MIN, -1) == INT64_MAX);
  CHECK(combined<std::int64_t>(DataType::kInt64, kProd, INT64_MIN, -1) == INT64_MIN);
  CHECK(combined<std::uint64_t>(DataType::kUint64, kProd, 1ull << 33, 1ull << 31) == 0);
  CHECK(combined<std::uint64_t>(DataType::kUint64, kProd, 0x100000001ull, 0x100000001ull) == 0x200000001ull);
}

TEST_CASE("16-bit integers wrap, compare and divide as the others") {
  CHECK(combined<std::int16_t>(DataType::kInt16, kSum, 32767, 1) == -32768);
  CHECK(combined<std::int16_t>(DataType::kInt16, kProd, -32768, -1) == -32768);
  CHECK(combined<std::uint16_t>(DataType::kUint16, kProd, 65535, 65535) == 1);
  CHECK(combined<std::int16_t>(DataType::kInt16, kMax, -1, 1) == 1);
  CHECK(combined<std::uint16_t>(DataType::kUint16, kMax, 65535, 1) == 65535);
  CHECK(divided<std::int16_t>(DataType::kInt16, -7, 2) == -3);
  CHECK(divided<std::int16_t>(DataType::kInt16, -32768, 70000) == 0);
}

TEST_CASE("bitwise operators work on bits, logical ones on whether an element is zero") {
  CHECK(combined<std::uint8_t>(DataType::kUint8, kBand, 0xcc, 0xaa) == 0x88);
  CHECK(combined<std::int32_t>(DataType::kInt32, kBor, 0x0c, 0x0a) == 0x0e);
  CHECK(combined<std::int64_t>(DataType::kInt64, kBxor, -1, 0x0f) == ~std::int64_t{0x0f});
  for (const DataType type : {DataType::kInt32, DataType::kUint32}) {
    CHECK(combined<std::int32_t>(type, kLand, 4, 2) == 1);
    CHECK(combined<std::int32_t>(type, kLand, 4, 0) == 0);
    CHECK(combined<std::int32_t>(type, kLor, 0, INT32_MIN) == 1);
    CHECK(combined<std::int32_t>(type, kLor, 0, 0) == 0);
    CHECK(combined<std::int32_t>(type, kLxor, 4, 2) == 0);
    CHECK(combined<std::int32_t>(type, kLxor, 0, 2) == 1);
  }
}

TEST_CASE("booleans are true where they are not 0, and become 1") {
  for (const ReduceOp any : {kSum, kMax, kBor, kLor}) {
    CHECK(combined<std::uint8_t>(DataType::kBool, any, 2, 4) == 1);
    CHECK(combined<std::uint8_t>(DataType::kBool, any, 0, 0x80) == 1);
    CHECK(combined<std::uint8_t>(DataType::kBool, any, 0, 0) == 0);
  }
  for (const ReduceOp all : {kProd, kMin, kBand, kLand}) {
    CHECK(combined<std::uint8_t>(DataType::kBool, all, 2, 4) == 1);
    CHECK(combined<std::uint8_t>(DataType::kBool, all, 2, 0) == 0);
  }
  for (const ReduceOp one : {kBxor, kLxor}) {
    CHECK(combined<std::uint8_t>(DataType::kBool, one, 2, 4) == 0);
    CHECK(combined<std::uint8_t>(DataType::kBool, one, 0, 4) == 1);
  }
}

TEST_CASE("complex numbers") {
  using Single = Complex<float>;
  using Double = Complex<double>;
  const auto sum = combined<Single>(DataType::kComplex64, kSum, {1, 2}, {3, -5});
  CHECK(sum.re == 4);
  CHECK(sum.im == -3);
  const auto product = combined<Double>(DataType::kComplex128, kProd, {1, 2}, {3, -5});
  CHECK(product.re == 13);
  CHECK(product.im == 1);
  const auto part = divided<Single>(DataType::kComplex64, {3, -1}, 2);
  CHECK(part.re == 1.5F);
  CHECK(part.im == -0.5F);
}

TEST_CASE("integer extremes follow the sign of the type") {
  CHECK(combined<std::int8_t>(DataType::kInt8, kMax, -1, 1) == 1);
  CHECK(combined<std::uint8_t>(DataType::kUint8, kMax, 255, 1) == 255);
  CHECK(combined<std::int64_t>(DataType::kInt64, kMin, INT64_MIN, INT64_MAX) == INT64_MIN);
  CHECK(combined<std::uint64_t>(DataType::kUint64, kMin, UINT64_MAX, 1) == 1);
}

TEST_CASE("integer averages truncate towards zero") {
  CHECK(divided<std::int8_t>(DataType::kInt8, -7, 2) == -3);
  CHECK(divided<std::int8_t>(DataType::kInt8, -128, 200) == 0);
  CHECK(divided<std::int32_t>(DataType::kInt32, INT32_MIN, 3) == -715827882);
  CHECK(divided<std::int64_t>(DataType::kInt64, INT64_MIN, 1) == INT64_MIN);
  CHECK(divided<std::int64_t>(DataType::kInt64, INT64_MIN, std::size_t{1} << 63) == -1);
  CHECK(divided<std::uint64_t>(DataType::kUint64, UINT64_MAX, 2) == UINT64_MAX / 2);
}

TEST_CASE("extremes of floats: NaN wins, +0 is above -0") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {kMax, kMin}) {
    CHECK(std::isnan(combined(DataType::kFloat32, op, nan, 1.0f)));
    CHECK(std::isnan(combined(DataType::kFloat32, op, -1.0f, nan)));
    CHECK(std::isnan(combined(DataType::kFloat64, op, static_cast<double>(nan), HUGE_VAL)));
    CHECK(std::isnan(half_to_float(combined<std::uint16_t>(DataType::kFloat16, op, 0x7e00, 0x3c00))));
    CHECK(combined<std::uint8_t>(DataType::kFloat8E4M3, op, 0x7f, 0x08) == 0xff);
  }
  CHECK_FALSE(std::signbit(combined(DataType::kFloat32, kMax, -0.0f, 0.0f)));
  CHECK_FALSE(std::signbit(combined(DataType::kFloat32, kMax, 0.0f, -0.0f)));
  CHECK(std::signbit(combined(DataType::kFloat64, kMin, -0.0, 0.0)));
  CHECK(std::signbit(combined(DataType::kFloat64, kMin, 0.0, -0.0)));
  CHECK(combined(DataType::kFloat32, kMax, -2.0f, -3.0f) == -2.0f);
  CHECK(combined(DataType::kFloat64, kMin, -2.0, 3.0) == -2.0);
}

TEST_CASE("small floats round once and overflow by their format") {
  // 1 + 2^-11 is a tie between two halves: to even. A little more rounds up.
  CHECK(combined<std::uint16_t>(DataType::kFloat16, kSum, 0x3c00, float_to_half(0x1p-11f)) == 0x3c00);
  CHECK(combined<std::uint16_t>(DataType::kFloat16, kSum, 0x3c01, float_to_half(0x1p-11f)) == 0x3c02);
  CHECK(combined<std::uint16_t>(DataType::kFloat16, kSum, 0x7bff, 0x7bff) == 0x7c00);
  CHECK(combined<std::uint16_t>(DataType::kFloat16, kSum, 0x7c00, 0xfc00) != 0x7c00);   // inf - inf is NaN
  CHECK(combined<std::uint16_t>(DataType::kFloat16, kProd, 0x0001, 0x3c00) == 0x0001);  // subnormal times one
  CHECK(combined<std::uint16_t>(DataType::kBfloat16, kSum, 0x7f7f, 0x7f7f) == 0x7f80);
  CHECK(combined<std::uint8_t>(DataType::kFloat8E4M3, kSum, 0x7e, 0x7e) == 0x7e);
  CHECK(combined<std::uint8_t>(DataType::kFloat8E4M3, kProd, 0x7e, 0xfe) == 0xfe);
  CHECK(combined<std::uint8_t>(DataType::kFloat8E5M2, kSum, 0x7c, 0x00) == 0x7b);  // infinity saturates too
  CHECK(divided<std::uint16_t>(DataType::kFloat16, 0x4200, 2) == 0x3e00);          // 3 / 2
  CHECK(divided<float>(DataType::kFloat32, 1.0f, 3) == 1.0f / 3.0f);
  CHECK(divided<double>(DataType::kFloat64, 1.0, 3) == 1.0 / 3.0);
}

}  // namespace
}  // namespace tutti::internal::reduction
