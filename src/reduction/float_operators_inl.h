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
namespace tutti::reduction::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Extremes as in float_extreme (element.h). x86's instructions return the second operand when one is NaN or
// both are zero; so the two orders give (b, a) in these cases, and the same bits in all others. Their union
// is a NaN if one is NaN, and -0 unless both are +0.
template <ReduceOp op, class D>
HWY_INLINE hn::Vec<D> combine_float_vectors(D d, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (op == ReduceOp::kProd) {
    return hn::Mul(a, b);
  } else if constexpr (op == ReduceOp::kMin) {
    return hn::Or(hn::Min(a, b), hn::Min(b, a));
  } else if constexpr (op == ReduceOp::kMax) {
    const auto x = hn::Max(a, b), y = hn::Max(b, a);
    return hn::AndNot(hn::And(hn::Xor(x, y), hn::SignBit(d)), hn::Or(x, y));
  } else {
    return hn::Add(a, b);
  }
}

#endif

}  // namespace tutti::reduction::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
