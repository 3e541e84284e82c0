// The operators on vectors of float32 or float64, compiled once per SIMD target.
#if defined(TUTTI_REDUCTION_FLOAT_OPERATORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCTION_FLOAT_OPERATORS_INL_H_
#undef TUTTI_REDUCTION_FLOAT_OPERATORS_INL_H_
#else
#define TUTTI_REDUCTION_FLOAT_OPERATORS_INL_H_
#endif

#include "base/types.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::internal::reduction::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Sets all bits where `mask` is set: the NaN of element.h.
template <class D>
HWY_INLINE hn::Vec<D> one_nan_where(D d, hn::Mask<D> mask, hn::Vec<D> v) {
#if HWY_TARGET <= HWY_AVX3
  const hn::RebindToUnsigned<D> du;
  return hn::IfThenElse(mask, hn::BitCast(d, hn::Set(du, ~hn::TFromD<decltype(du)>{0})), v);
#else
  return hn::Or(v, hn::VecFromMask(d, mask));  // a blend takes up to three times as long
#endif
}
template <class D>
HWY_INLINE hn::Vec<D> with_one_nan(D d, hn::Vec<D> v) {
  return one_nan_where(d, hn::IsNaN(v), v);
}

// On x86, min and max return the second operand if one is NaN or both are zero. So the two operand orders give b and a
// in these cases, and the same bits in all others. Their bitwise or is a NaN if one is NaN, and -0 unless both are +0;
// their bitwise and is +0 unless both are -0. Other architectures may return the number if one is NaN.
inline constexpr bool kExtremesKeepNan = HWY_ARCH_X86 != 0;

// Maximum or minimum with the same bits as combine_floats (element.h), except that NaNs may be lost.
template <ReduceOp op, class D>
HWY_INLINE hn::Vec<D> extreme(D d, hn::Vec<D> a, hn::Vec<D> b) {
  const auto nan = hn::Or(hn::IsNaN(a), hn::IsNaN(b));
  if constexpr (op == ReduceOp::kMax) return one_nan_where(d, nan, hn::And(hn::Max(a, b), hn::Max(b, a)));
  return one_nan_where(d, nan, hn::Or(hn::Min(a, b), hn::Min(b, a)));
}

// As combine_floats (element.h), except that a NaN may have any bits.
template <ReduceOp op, class D>
HWY_INLINE hn::Vec<D> combine_with_any_nan(D d, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (op == ReduceOp::kProd) {
    return hn::Mul(a, b);
  } else if constexpr ((op == ReduceOp::kMin || op == ReduceOp::kMax) && !kExtremesKeepNan) {
    return extreme<op>(d, a, b);
  } else if constexpr (op == ReduceOp::kMin) {
    return hn::Or(hn::Min(a, b), hn::Min(b, a));
  } else if constexpr (op == ReduceOp::kMax) {
    const auto x = hn::Max(a, b), y = hn::Max(b, a);
    return hn::AndNot(hn::And(hn::Xor(x, y), hn::SignBit(d)), hn::Or(x, y));
  } else {
    return hn::Add(a, b);
  }
}

// The same bits as combine_floats.
template <ReduceOp op, class D>
HWY_INLINE hn::Vec<D> combine_float_vectors(D d, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (op == ReduceOp::kMax && kExtremesKeepNan) {
    const auto x = hn::Max(a, b), y = hn::Max(b, a);
    return one_nan_where(d, hn::IsNaN(hn::Or(x, y)), hn::And(x, y));
  } else {
    return with_one_nan(d, combine_with_any_nan<op>(d, a, b));
  }
}

#endif

}  // namespace tutti::internal::reduction::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
