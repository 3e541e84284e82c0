// Kernels of float32 and float64, and the streaming copy.
#include "reduction/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/floats.cc"
#include "hwy/foreach_target.h"
#include "reduction/float_operators_inl.h"
#include "reduction/loops_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::internal::reduction::HWY_NAMESPACE {

template <DataType type, ReduceOp op>
struct FloatOperation {
  using T = Storage<type>;
  using Lane = T;
  static constexpr std::size_t kUnroll = 4;
  static constexpr bool kFromVectorOnly = false;

  static HWY_INLINE T one(T a, T b) { return combine_element<type, op>(a, b); }

#if HWY_TARGET != HWY_SCALAR
  using Tag = hn::ScalableTag<T>;
  template <class D>
  static HWY_INLINE hn::Vec<D> apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
    return combine_float_vectors<op>(d, a, b);
  }
#endif
};

// The compiler vectorises this for the target.
template <DataType type>
void finish(std::byte* target, std::size_t count, std::size_t divisor) {
  if (leaves_default_mode<true>()) [[unlikely]]
    return in_default_mode(&finish<type>, target, count, divisor);
  using T = Storage<type>;
  const T by = static_cast<T>(divisor);
  for (std::size_t i = 0; i < count * sizeof(T); i += sizeof(T)) {
    store_element<T>(target + i, tutti::internal::reduction::with_one_nan(load_element<T>(target + i) / by));
  }
}

template <DataType type>
void fill_type(Table& table) {
  put<type, ReduceOp::kSum, FloatOperation<type, ReduceOp::kSum>>(table);
  put<type, ReduceOp::kProd, FloatOperation<type, ReduceOp::kProd>>(table);
  put<type, ReduceOp::kMax, FloatOperation<type, ReduceOp::kMax>>(table);
  put<type, ReduceOp::kMin, FloatOperation<type, ReduceOp::kMin>>(table);
  put<type, ReduceOp::kAvg, FloatOperation<type, ReduceOp::kSum>>(table);
  table.at(type, ReduceOp::kAvg).finish = &finish<type>;
}

void fill_floats(Table& table) {
  fill_type<DataType::kFloat32>(table);
  fill_type<DataType::kFloat64>(table);
}

}  // namespace tutti::internal::reduction::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::internal::reduction {

TUTTI_FILLER(float_filler, fill_floats)

}  // namespace tutti::internal::reduction
#endif
