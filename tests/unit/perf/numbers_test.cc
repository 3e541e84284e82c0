// The programs' own arithmetic of every datatype, compared with numbers from the formats' definitions.
#include "perf/harness/numbers.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "catch_compat.h"

namespace tutti::internal::perf {
namespace {

const std::array kFloats = {DataType::kFloat16,  DataType::kFloat32,    DataType::kFloat64,
                            DataType::kBfloat16, DataType::kFloat8E4M3, DataType::kFloat8E5M2};

std::uint64_t bits_of(float f) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &f, sizeof bits);
  return bits;
}

double largest(DataType type) {
  const FloatFormat f = float_format(type);
  // E4M3 uses its highest mantissa for NaN.
  const double mantissa = f.has_infinity ? 2 - std::ldexp(1, -f.mantissa_bits) : 2 - std::ldexp(1, 1 - f.mantissa_bits);
  return std::ldexp(mantissa, f.max_exponent());
}

}  // namespace

TEST_CASE("kinds of datatypes") {
  for (const DataType type : kFloats) {
    INFO(name_of(type));
    CHECK(is_float(type));
    CHECK_FALSE(is_signed_integer(type));
    const FloatFormat f = float_format(type);
    CHECK(static_cast<std::size_t>(1 + f.exponent_bits + f.mantissa_bits) == 8 * size_of(type));
  }
  for (const DataType type : {DataType::kInt8, DataType::kInt16, DataType::kInt32, DataType::kInt64}) {
    CHECK(is_signed_integer(type));
  }
  for (const DataType type :
       {DataType::kUint8, DataType::kUint16, DataType::kUint32, DataType::kUint64, DataType::kBool}) {
    CHECK_FALSE(is_signed_integer(type));
    CHECK_FALSE(is_float(type));
  }
}

TEST_CASE("the largest numbers of the formats") {
  CHECK(largest(DataType::kFloat16) == 65504);
  CHECK(largest(DataType::kFloat8E4M3) == 448);
  CHECK(largest(DataType::kFloat8E5M2) == 57344);
  CHECK(largest(DataType::kFloat32) == static_cast<double>(std::numeric_limits<float>::max()));
  CHECK(largest(DataType::kFloat64) == std::numeric_limits<double>::max());
  for (const DataType type : kFloats) {
    INFO(name_of(type));
    CHECK(decode(type, encode(type, largest(type))) == largest(type));
    CHECK(decode(type, encode(type, -largest(type))) == -largest(type));
  }
  for (const DataType type : {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
    INFO(name_of(type));
    CHECK(decode(type, encode(type, largest(type) * 4)) == largest(type));
    CHECK(decode(type, encode(type, -1e300)) == -largest(type));
  }
}

TEST_CASE("every pattern of the short floats survives decoding and encoding") {
  for (const DataType type : {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
    const std::uint64_t patterns = std::uint64_t{1} << (8 * size_of(type));
    std::uint64_t finite = 0;
    std::uint64_t wrong = 0;
    for (std::uint64_t bits = 0; bits < patterns; ++bits) {
      const double value = decode(type, bits);
      if (!std::isfinite(value)) continue;
      ++finite;
      if (encode(type, value) != bits) ++wrong;
    }
    const FloatFormat f = float_format(type);
    const std::uint64_t special = f.has_infinity ? std::uint64_t{2} << f.mantissa_bits : 2;
    INFO(name_of(type));
    CHECK(wrong == 0);
    CHECK(finite == patterns - special);
  }
}

TEST_CASE("float and double are read as the processor reads them") {
  for (const float f : {0.0F, -0.0F, 1.0F, -2.5F, 1e-45F, 1.17549435e-38F, 3.1415927F, 3.4028235e38F}) {
    INFO(f);
    CHECK(decode(DataType::kFloat32, bits_of(f)) == static_cast<double>(f));
    CHECK(encode(DataType::kFloat32, static_cast<double>(f)) == bits_of(f));
  }
  // Rounding must match a cast.
  for (const double d : {0.1, 1.0 / 3, 16777217.0, 1e-40, 1 + std::ldexp(1, -24), 1 + std::ldexp(3, -24)}) {
    INFO(d);
    CHECK(encode(DataType::kFloat32, d) == bits_of(static_cast<float>(d)));
  }
  for (const double d : {0.1, -5e-324, 2.2250738585072014e-308, 1e308}) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &d, sizeof bits);
    INFO(d);
    CHECK(decode(DataType::kFloat64, bits) == d);
    CHECK(encode(DataType::kFloat64, d) == bits);
  }
  CHECK(std::isinf(decode(DataType::kFloat32, 0x7F800000)));
  CHECK(std::isnan(decode(DataType::kFloat32, 0x7F800001)));
  CHECK(std::isnan(decode(DataType::kFloat8E4M3, 0x7F)));
}

TEST_CASE("ties go to even") {
  // Float16 near 2048 has a step of two.
  CHECK(decode(DataType::kFloat16, encode(DataType::kFloat16, 2049)) == 2048);
  CHECK(decode(DataType::kFloat16, encode(DataType::kFloat16, 2051)) == 2052);
  CHECK(decode(DataType::kFloat8E4M3, encode(DataType::kFloat8E4M3, 17)) == 16);
  CHECK(decode(DataType::kFloat8E4M3, encode(DataType::kFloat8E4M3, 19)) == 20);
  // A carry into the next exponent.
  CHECK(decode(DataType::kBfloat16, encode(DataType::kBfloat16, 511)) == 512);
}

TEST_CASE("bits are stored and loaded with the lowest byte first") {
  std::array<std::byte, 9> memory{};
  memory.fill(std::byte{0xEE});
  for (int i = 0; i < kDataTypes; ++i) {
    const auto type = static_cast<DataType>(i);
    if (is_complex(type)) continue;  // stored by its parts
    const std::size_t size = size_of(type);
    const std::uint64_t bits =
        0x8877665544332211 & (size == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * size) - 1);
    store_bits(type, bits, memory.data());
    INFO(name_of(type));
    CHECK(load_bits(type, memory.data()) == bits);
    CHECK(memory[0] == std::byte{0x11});
    CHECK(memory[size] == std::byte{0xEE});
    memory.fill(std::byte{0xEE});
  }
  CHECK(as_signed(DataType::kInt8, 0xFF) == -1);
  CHECK(as_signed(DataType::kInt32, 0x80000000) == std::numeric_limits<std::int32_t>::min());
  CHECK(as_signed(DataType::kInt64, 1) == 1);
}

}  // namespace tutti::internal::perf
