// One element at a time: the definition of each operator for each datatype. The reference loops over it; the SIMD
// kernels use it for the elements outside whole vectors.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/types.h"
#include "reduction/small_float.h"

namespace tutti::internal::reduction {

// A complex number as C and C++ lay it out.
template <class F>
struct Complex {
  F re;
  F im;
};

namespace detail {
template <DataType type>
constexpr auto storage_of() {
  if constexpr (type == DataType::kInt16) return std::int16_t{};
  if constexpr (type == DataType::kUint16) return std::uint16_t{};
  if constexpr (type == DataType::kComplex64) return Complex<float>{};
  if constexpr (type == DataType::kComplex128) return Complex<double>{};
  if constexpr (type == DataType::kBool) return std::uint8_t{};
  if constexpr (type == DataType::kInt8) return std::int8_t{};
  if constexpr (type == DataType::kUint8) return std::uint8_t{};
  if constexpr (type == DataType::kInt32) return std::int32_t{};
  if constexpr (type == DataType::kUint32) return std::uint32_t{};
  if constexpr (type == DataType::kInt64) return std::int64_t{};
  if constexpr (type == DataType::kUint64) return std::uint64_t{};
  if constexpr (type == DataType::kFloat32) return float{};
  if constexpr (type == DataType::kFloat64) return double{};
  if constexpr (type == DataType::kFloat16 || type == DataType::kBfloat16) return std::uint16_t{};
  if constexpr (type == DataType::kFloat8E4M3 || type == DataType::kFloat8E5M2) return std::uint8_t{};
}
}  // namespace detail

// The memory format of an element: the C++ type itself, or the code of a small float.
template <DataType type>
using Storage = decltype(detail::storage_of<type>());

constexpr bool is_small_float(DataType type) {
  return type == DataType::kFloat16 || type == DataType::kBfloat16 || type == DataType::kFloat8E4M3 ||
         type == DataType::kFloat8E5M2;
}

template <DataType type>
constexpr float widen_element(Storage<type> code) {
  static_assert(is_small_float(type));
  if constexpr (type == DataType::kFloat16) return half_to_float(code);
  if constexpr (type == DataType::kBfloat16) return bfloat16_to_float(code);
  if constexpr (type == DataType::kFloat8E4M3) return e4m3_to_float(code);
  if constexpr (type == DataType::kFloat8E5M2) return e5m2_to_float(code);
}

template <DataType type>
constexpr Storage<type> narrow_element(float value) {
  static_assert(is_small_float(type));
  if constexpr (type == DataType::kFloat16) return float_to_half(value);
  if constexpr (type == DataType::kBfloat16) return float_to_bfloat16(value);
  if constexpr (type == DataType::kFloat8E4M3) return float_to_e4m3(value);
  if constexpr (type == DataType::kFloat8E5M2) return float_to_e5m2(value);
}

// The bits of a NaN depend on the order of the operands (x86 keeps the first one's), and ranks combine in either order.
// So every NaN result is replaced by the NaN with all bits set, which takes the fewest vector instructions.
template <class F>
constexpr F kOneNan = std::bit_cast<F>(~std::conditional_t<sizeof(F) == 4, std::uint32_t, std::uint64_t>{});
template <class F>
constexpr F with_one_nan(F value) {
  return value == value ? value : kOneNan<F>;
}

// Maximum or minimum with +0 above -0; NaN if an operand is NaN.
template <bool maximum, class F>
constexpr F float_extreme(F a, F b) {
  using Bits = std::conditional_t<sizeof(F) == 4, std::uint32_t, std::uint64_t>;
  if (a < b) return maximum ? b : a;
  if (b < a) return maximum ? a : b;
  if (a != b) return kOneNan<F>;
  const Bits x = std::bit_cast<Bits>(a), y = std::bit_cast<Bits>(b);  // they differ only if both are zeros
  return std::bit_cast<F>(maximum ? static_cast<Bits>(x & y) : static_cast<Bits>(x | y));
}

template <ReduceOp op, class F>
constexpr F combine_floats(F a, F b) {
  if constexpr (op == ReduceOp::kProd) return with_one_nan(a * b);
  if constexpr (op == ReduceOp::kMax) return float_extreme<true>(a, b);
  if constexpr (op == ReduceOp::kMin) return float_extreme<false>(a, b);
  if constexpr (op == ReduceOp::kSum || op == ReduceOp::kAvg) return with_one_nan(a + b);
}

template <ReduceOp op, class I>
constexpr I combine_integers(I a, I b) {
  // Computed without sign in at least 32 bits: products of narrower types must not become signed ints.
  using Wide = std::conditional_t<sizeof(I) == 8, std::uint64_t, std::uint32_t>;
  if constexpr (op == ReduceOp::kProd) return static_cast<I>(static_cast<Wide>(a) * static_cast<Wide>(b));
  if constexpr (op == ReduceOp::kMax) return a < b ? b : a;
  if constexpr (op == ReduceOp::kMin) return b < a ? b : a;
  if constexpr (op == ReduceOp::kSum || op == ReduceOp::kAvg) {
    return static_cast<I>(static_cast<Wide>(a) + static_cast<Wide>(b));
  }
  if constexpr (op == ReduceOp::kBand) return static_cast<I>(a & b);
  if constexpr (op == ReduceOp::kBor) return static_cast<I>(a | b);
  if constexpr (op == ReduceOp::kBxor) return static_cast<I>(a ^ b);
  if constexpr (op == ReduceOp::kLand) return static_cast<I>(a != 0 && b != 0);
  if constexpr (op == ReduceOp::kLor) return static_cast<I>((a | b) != 0);
  if constexpr (op == ReduceOp::kLxor) return static_cast<I>((a != 0) != (b != 0));
}

// The logical operator that corresponds to an operator for booleans.
constexpr ReduceOp logical_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kBand:
    case ReduceOp::kLand: return ReduceOp::kLand;
    case ReduceOp::kBxor:
    case ReduceOp::kLxor: return ReduceOp::kLxor;
    default: return ReduceOp::kLor;
  }
}

// Written so that swapping the operands changes no bit. REQUIRES: compiled without contraction to fused multiply-add
// (-ffp-contract=off), which rounds one product of the two and not the other.
template <ReduceOp op, class F>
constexpr Complex<F> combine_complex(Complex<F> a, Complex<F> b) {
  if constexpr (op == ReduceOp::kProd) {
    return {with_one_nan(a.re * b.re - a.im * b.im), with_one_nan(a.re * b.im + a.im * b.re)};
  } else {
    return {with_one_nan(a.re + b.re), with_one_nan(a.im + b.im)};
  }
}

// REQUIRES: supports(type, op).
template <DataType type, ReduceOp op>
constexpr Storage<type> combine_element(Storage<type> a, Storage<type> b) {
  static_assert(supports(type, op));
  if constexpr (type == DataType::kBool) {
    return combine_integers<logical_of(op)>(a, b);
  } else if constexpr (is_complex(type)) {
    return combine_complex<op>(a, b);
  } else if constexpr (is_small_float(type)) {
    return narrow_element<type>(combine_floats<op>(widen_element<type>(a), widen_element<type>(b)));
  } else if constexpr (std::is_floating_point_v<Storage<type>>) {
    return combine_floats<op>(a, b);
  } else {
    return combine_integers<op>(a, b);
  }
}

// divisor >= 1. REQUIRES: supports(type, ReduceOp::kAvg).
template <DataType type>
constexpr Storage<type> divide_element(Storage<type> value, std::size_t divisor) {
  using T = Storage<type>;
  if constexpr (is_complex(type)) {
    const auto by = static_cast<decltype(value.re)>(divisor);
    return {with_one_nan(value.re / by), with_one_nan(value.im / by)};
  } else if constexpr (is_small_float(type)) {
    return narrow_element<type>(widen_element<type>(value) / static_cast<float>(divisor));
  } else if constexpr (std::is_floating_point_v<T>) {
    return with_one_nan(value / static_cast<T>(divisor));
  } else if constexpr (std::is_signed_v<T>) {
    // By magnitude, because a divisor above the type's range is allowed and -2^63 has no negative.
    const std::uint64_t wide = static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
    return static_cast<T>(value < 0 ? std::uint64_t{0} - (std::uint64_t{0} - wide) / divisor : wide / divisor);
  } else {
    return static_cast<T>(value / divisor);
  }
}

// Calls f with the datatype as a compile-time constant.
template <class F>
void with_type(DataType type, F&& f) {
  switch (type) {
    case DataType::kInt8: return f.template operator()<DataType::kInt8>();
    case DataType::kUint8: return f.template operator()<DataType::kUint8>();
    case DataType::kInt32: return f.template operator()<DataType::kInt32>();
    case DataType::kUint32: return f.template operator()<DataType::kUint32>();
    case DataType::kInt64: return f.template operator()<DataType::kInt64>();
    case DataType::kUint64: return f.template operator()<DataType::kUint64>();
    case DataType::kFloat16: return f.template operator()<DataType::kFloat16>();
    case DataType::kFloat32: return f.template operator()<DataType::kFloat32>();
    case DataType::kFloat64: return f.template operator()<DataType::kFloat64>();
    case DataType::kBfloat16: return f.template operator()<DataType::kBfloat16>();
    case DataType::kFloat8E4M3: return f.template operator()<DataType::kFloat8E4M3>();
    case DataType::kFloat8E5M2: return f.template operator()<DataType::kFloat8E5M2>();
    case DataType::kInt16: return f.template operator()<DataType::kInt16>();
    case DataType::kUint16: return f.template operator()<DataType::kUint16>();
    case DataType::kComplex64: return f.template operator()<DataType::kComplex64>();
    case DataType::kComplex128: return f.template operator()<DataType::kComplex128>();
    case DataType::kBool: return f.template operator()<DataType::kBool>();
    case DataType::kOpaque: return;  // has no kernels
  }
}

// Elements need not be aligned.
template <class T>
T load_element(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <class T>
void store_element(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

}  // namespace tutti::internal::reduction
