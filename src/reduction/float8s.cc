// Kernels of the 8-bit floats.
#include "reduction/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/float8s.cc"
#include "hwy/foreach_target.h"
#include "reduction/small_floats_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::internal::reduction::HWY_NAMESPACE {

void fill_float8s(Table& table) {
  fill_small_float<DataType::kFloat8E4M3>(table);
  fill_small_float<DataType::kFloat8E5M2>(table);
}

}  // namespace tutti::internal::reduction::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::internal::reduction {

TUTTI_FILLER(float8_filler, fill_float8s)

}  // namespace tutti::internal::reduction
#endif
