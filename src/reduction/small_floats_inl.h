// Operations on the 16- and 8-bit floats, compiled once per SIMD target. A vector of codes is taken as 32-bit
// lanes that hold two or four codes each; each position is widened to float32 in its lane, combined,
// rounded, and put back, so that no element ever crosses a lane. (float16 has instructions of its own on
// targets from AVX2 on.) The conversions are those of small_float.h, step for step.
#if defined(TUTTI_REDUCTION_SMALL_FLOATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCTION_SMALL_FLOATS_INL_H_
#undef TUTTI_REDUCTION_SMALL_FLOATS_INL_H_
#else
#define TUTTI_REDUCTION_SMALL_FLOATS_INL_H_
#endif

#include <bit>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "reduction/element.h"
#include "reduction/float_operators_inl.h"
#include "reduction/loops_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::internal::reduction::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Codes, one per 32-bit lane and zero-extended, to float32.
template <SmallFormat f, class DI>
HWY_INLINE hn::Vec<hn::RebindToFloat<DI>> widen_lanes(DI di, hn::Vec<DI> code) {
  const hn::RebindToFloat<DI> df;
  constexpr int kShift = 23 - f.mantissa_bits;
  constexpr std::int32_t kSign = 1 << (f.bits - 1);
  const auto magnitude = hn::And(code, hn::Set(di, kSign - 1));
  const auto sign = hn::ShiftLeft<32 - f.bits>(hn::And(code, hn::Set(di, kSign)));
  const auto shifted = hn::ShiftLeft<kShift>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(di, (127 - f.bias) << 23));
  const auto scale = hn::Set(df, std::bit_cast<float>(power_of_two_bits(smallest_exponent(f))));
  const auto subnormal = hn::BitCast(di, hn::Mul(hn::ConvertTo(df, magnitude), scale));
  auto bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 1 << f.mantissa_bits)), subnormal, normal);
  // Infinity and NaN: all exponent bits. The format without infinity has one NaN, whose mantissa is not 0.
  const auto special = hn::Gt(magnitude, hn::Set(di, static_cast<std::int32_t>(f.largest_finite)));
  bits = hn::IfThenElse(special, hn::Or(shifted, hn::Set(di, static_cast<std::int32_t>(kFloatInfinityBits))), bits);
  return hn::BitCast(df, hn::Or(bits, sign));
}

// float32 to codes, one per 32-bit lane and zero-extended.
template <SmallFormat f, class DI>
HWY_INLINE hn::Vec<DI> narrow_lanes(DI di, hn::Vec<hn::RebindToFloat<DI>> value) {
  const hn::RebindToFloat<DI> df;
  const hn::RebindToUnsigned<DI> du;
  constexpr int kShift = 23 - f.mantissa_bits;
  const auto bits = hn::BitCast(di, value);
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
  const auto sign = hn::BitCast(di, hn::ShiftLeft<f.bits - 1>(hn::ShiftRight<31>(hn::BitCast(du, bits))));
  const auto even = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(di, 1));
  constexpr std::int32_t kRound = (1 << (kShift - 1)) - 1 - ((127 - f.bias) << 23);
  const auto normal = hn::ShiftRight<kShift>(hn::Add(hn::Add(magnitude, even), hn::Set(di, kRound)));
  constexpr std::uint32_t kMagicBits = power_of_two_bits(smallest_exponent(f) + 23);
  const auto rounded = hn::Add(hn::BitCast(df, magnitude), hn::Set(df, std::bit_cast<float>(kMagicBits)));
  const auto subnormal = hn::Sub(hn::BitCast(di, rounded), hn::Set(di, static_cast<std::int32_t>(kMagicBits)));
  constexpr std::int32_t kSmallestNormal = static_cast<std::int32_t>(power_of_two_bits(1 - f.bias));
  auto code = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, kSmallestNormal)), subnormal, normal);
  // In every format `overflow` is the largest finite magnitude or the one after it, so that a minimum suffices.
  static_assert(f.overflow == f.largest_finite || f.overflow == f.largest_finite + 1);
  code = hn::Min(code, hn::Set(di, static_cast<std::int32_t>(f.overflow)));
  const auto nan = hn::Gt(magnitude, hn::Set(di, static_cast<std::int32_t>(kFloatInfinityBits)));
  return hn::IfThenElse(nan, hn::Set(di, static_cast<std::int32_t>(f.one_nan())), hn::Or(code, sign));
}

// float32 to bfloat16 in the upper half of each lane; the lower half is 0.
template <class DU>
HWY_INLINE hn::Vec<DU> round_to_bfloat16(DU du, hn::Vec<hn::RebindToFloat<DU>> value) {
  const auto bits = hn::BitCast(du, value);
  const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(hn::Add(bits, even), hn::Set(du, 0x7fff));
  return hn::And(one_nan_where(du, hn::RebindMask(du, hn::IsNaN(value)), rounded), hn::Set(du, 0xffff0000u));
}

// Calls f(x, y) on the float32 values of the codes in a and b and returns the codes of its results. Every NaN becomes
// the same one.
template <DataType type, class D, class F>
HWY_INLINE hn::Vec<D> through_float(D d, hn::Vec<D> a, hn::Vec<D> b, F f) {
  const hn::Repartition<std::int32_t, D> di;
  const hn::Repartition<std::uint32_t, D> du;
  const hn::Repartition<float, D> df;
  if constexpr (type == DataType::kBfloat16) {
    const auto x = hn::BitCast(du, a), y = hn::BitCast(du, b);
    const auto upper = hn::Set(du, 0xffff0000u);
    const auto low = f(hn::BitCast(df, hn::ShiftLeft<16>(x)), hn::BitCast(df, hn::ShiftLeft<16>(y)));
    const auto high = f(hn::BitCast(df, hn::And(x, upper)), hn::BitCast(df, hn::And(y, upper)));
    return hn::BitCast(d, hn::Or(hn::ShiftRight<16>(round_to_bfloat16(du, low)), round_to_bfloat16(du, high)));
  } else {
    constexpr SmallFormat kFormat = type == DataType::kFloat16      ? kHalfFormat
                                    : type == DataType::kFloat8E4M3 ? kE4M3Format
                                                                    : kE5M2Format;
    const auto x = hn::BitCast(du, a), y = hn::BitCast(du, b);
    const auto mask = hn::Set(du, (1u << kFormat.bits) - 1);
    const auto position = [&](auto shifted_x, auto shifted_y) HWY_ATTR {
      const auto u = widen_lanes<kFormat>(di, hn::BitCast(di, hn::And(shifted_x, mask)));
      const auto v = widen_lanes<kFormat>(di, hn::BitCast(di, hn::And(shifted_y, mask)));
      return hn::BitCast(du, narrow_lanes<kFormat>(di, f(u, v)));
    };
    auto codes = position(x, y);
    if constexpr (kFormat.bits == 16) {
      codes = hn::Or(codes, hn::ShiftLeft<16>(position(hn::ShiftRight<16>(x), hn::ShiftRight<16>(y))));
    } else {
      codes = hn::Or(codes, hn::ShiftLeft<8>(position(hn::ShiftRight<8>(x), hn::ShiftRight<8>(y))));
      codes = hn::Or(codes, hn::ShiftLeft<16>(position(hn::ShiftRight<16>(x), hn::ShiftRight<16>(y))));
      codes = hn::Or(codes, hn::ShiftLeft<24>(position(hn::ShiftRight<24>(x), hn::ShiftRight<24>(y))));
    }
    return hn::BitCast(d, codes);
  }
}

// float16 by the processor's own conversions (round to nearest even, subnormals kept in every mode).
template <class D, class F>
HWY_INLINE hn::Vec<D> through_float_native_half(D d, hn::Vec<D> a, hn::Vec<D> b, F f) {
  const hn::Rebind<float, D> df;
  const hn::Rebind<hwy::float16_t, D> dh;
  const auto value = f(hn::PromoteTo(df, hn::BitCast(dh, a)), hn::PromoteTo(df, hn::BitCast(dh, b)));
  return hn::BitCast(d, hn::DemoteTo(dh, with_one_nan(df, value)));
}

template <DataType type>
constexpr bool kNative = type == DataType::kFloat16 && (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3);

// The vectors of codes in the loops. Half a vector if the processor converts: from and to memory that is one
// instruction, while a whole vector would have to be split and joined.
template <DataType type>
using SmallFloatTag =
    std::conditional_t<kNative<type>, hn::Half<hn::ScalableTag<Storage<type>>>, hn::ScalableTag<Storage<type>>>;

template <DataType type, class D, class F>
HWY_INLINE hn::Vec<D> map_small_floats(D d, hn::Vec<D> a, hn::Vec<D> b, F f) {
  if constexpr (kNative<type>) {
    return through_float_native_half(d, a, b, f);
  } else {
    return through_float<type>(d, a, b, f);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

template <DataType type, ReduceOp op>
struct SmallFloatOperation {
  using T = Storage<type>;
  using Lane = T;
  static constexpr std::size_t kUnroll = 1;
  static constexpr bool kFromVectorOnly = true;

  static HWY_INLINE T one(T a, T b) { return combine_element<type, op>(a, b); }

#if HWY_TARGET != HWY_SCALAR
  using Tag = SmallFloatTag<type>;
  template <class D>
  static HWY_INLINE hn::Vec<D> apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
    return map_small_floats<type>(
        d, a, b, [](auto x, auto y) HWY_ATTR { return combine_with_any_nan<op>(hn::DFromV<decltype(x)>(), x, y); });
  }
#endif
};

template <DataType type>
void finish_small_floats(std::byte* target, std::size_t count, std::size_t divisor) {
  if (leaves_default_mode<true>()) [[unlikely]]
    return in_default_mode(&finish_small_floats<type>, target, count, divisor);
  using T = Storage<type>;
  const std::size_t bytes = count * sizeof(T);
  std::size_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  const SmallFloatTag<type> d;
  const float by = static_cast<float>(divisor);
  for (constexpr std::size_t kStep = hn::MaxLanes(d) * sizeof(T); done + kStep <= bytes; done += kStep) {
    T* const at = reinterpret_cast<T*>(target + done);
    const auto v = hn::LoadU(d, at);
    const auto quotient = map_small_floats<type>(
        d, v, v, [by](auto x, auto) HWY_ATTR { return hn::Div(x, hn::Set(hn::DFromV<decltype(x)>(), by)); });
    hn::StoreU(quotient, d, at);
  }
#endif
  for (; done < bytes; done += sizeof(T)) {
    store_element<T>(target + done, divide_element<type>(load_element<T>(target + done), divisor));
  }
}

template <DataType type>
void fill_small_float(Table& table) {
  put<type, ReduceOp::kSum, SmallFloatOperation<type, ReduceOp::kSum>>(table);
  put<type, ReduceOp::kProd, SmallFloatOperation<type, ReduceOp::kProd>>(table);
  put<type, ReduceOp::kMax, SmallFloatOperation<type, ReduceOp::kMax>>(table);
  put<type, ReduceOp::kMin, SmallFloatOperation<type, ReduceOp::kMin>>(table);
  put<type, ReduceOp::kAvg, SmallFloatOperation<type, ReduceOp::kSum>>(table);
  table.at(type, ReduceOp::kAvg).finish = &finish_small_floats<type>;
}

}  // namespace tutti::internal::reduction::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
