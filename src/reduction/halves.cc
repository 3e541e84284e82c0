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

TUTTI_FILLER(half_filler, fill_halves)

}  // namespace tutti::internal::reduction
#endif
