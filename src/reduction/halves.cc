// Kernels of float16 and bfloat16.
#include "reduction/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/halves.cc"
#include "hwy/foreach_target.h"
#include "reduction/small_floats_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::internal::reduction::HWY_NAMESPACE {

void fill_halves(Table& table) {
  fill_small_float<DataType::kFloat16>(table);
  fill_small_float<DataType::kBfloat16>(table);
}

}  // namespace tutti::internal::reduction::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::internal::reduction {

Fill half_filler(std::int64_t target) {
  switch (target) {
    case HWY_SSE4: return HWY_CHOOSE_SSE4(fill_halves);
    case HWY_AVX2: return HWY_CHOOSE_AVX2(fill_halves);
    case HWY_AVX3: return HWY_CHOOSE_AVX3(fill_halves);
    case HWY_NEON: return HWY_CHOOSE_NEON(fill_halves);
    default: return HWY_CHOOSE_FALLBACK(fill_halves);
  }
}

}  // namespace tutti::internal::reduction
#endif
