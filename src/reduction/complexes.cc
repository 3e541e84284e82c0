// Kernels of the complex types: vectors whose lanes alternate between real and imaginary parts.
#include "reduction/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/complexes.cc"
#include "hwy/foreach_target.h"
#include "reduction/float_operators_inl.h"
#include "reduction/loops_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::internal::reduction::HWY_NAMESPACE {

template <DataType type, ReduceOp op>
struct ComplexOperation {
  using T = Storage<type>;
  using Lane = decltype(T::re);
  static constexpr std::size_t kUnroll = 4;
  static constexpr bool kFromVectorOnly = false;

  static HWY_INLINE T one(T a, T b) { return combine_element<type, op>(a, b); }

#if HWY_TARGET != HWY_SCALAR
  using Tag = hn::ScalableTag<Lane>;
  template <class D>
  static HWY_INLINE hn::Vec<D> apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
    if constexpr (op == ReduceOp::kProd) {
      const auto real = hn::Mul(hn::DupEven(a), b);                       // ac, ad
      const auto imaginary = hn::Mul(hn::DupOdd(a), hn::Reverse2(d, b));  // bd, bc
      return with_one_nan(d, hn::OddEven(hn::Add(real, imaginary), hn::Sub(real, imaginary)));
    } else {
      return combine_float_vectors<ReduceOp::kSum>(d, a, b);
    }
  }
#endif
};

// The compiler vectorises this for the target.
template <DataType type>
void finish(std::byte* target, std::size_t count, std::size_t divisor) {
  if (leaves_default_mode<true>()) [[unlikely]]
    return in_default_mode(&finish<type>, target, count, divisor);
  using F = decltype(Storage<type>::re);
  const F by = static_cast<F>(divisor);
  for (std::size_t i = 0; i < 2 * count * sizeof(F); i += sizeof(F)) {
    store_element<F>(target + i, tutti::internal::reduction::with_one_nan(load_element<F>(target + i) / by));
  }
}

template <DataType type>
void fill_type(Table& table) {
  put<type, ReduceOp::kSum, ComplexOperation<type, ReduceOp::kSum>>(table);
  put<type, ReduceOp::kProd, ComplexOperation<type, ReduceOp::kProd>>(table);
  put<type, ReduceOp::kAvg, ComplexOperation<type, ReduceOp::kSum>>(table);
  table.at(type, ReduceOp::kAvg).finish = &finish<type>;
}

void fill_complexes(Table& table) {
  fill_type<DataType::kComplex64>(table);
  fill_type<DataType::kComplex128>(table);
}

}  // namespace tutti::internal::reduction::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::internal::reduction {

TUTTI_FILLER(complex_filler, fill_complexes)

}  // namespace tutti::internal::reduction
#endif
