// The plain meaning of the kernels, one element after the other. Slow; same contracts as in reduction/reduction.h. Any
// thread may call these.
#pragma once

#include <cstddef>

#include "base/types.h"

namespace tutti::internal::reduction {

// target[i] = a[i] op b[i], i < count. REQUIRES: supports(type, op). Equal to the kernels bit for bit, except for which
// NaN a NaN is.
void combine_reference(DataType type, ReduceOp op, std::byte* target, const std::byte* a, const std::byte* b,
                       std::size_t count);

// target[i] /= divisor, i < count; divisor >= 1. What Kernels::finish does for kAvg. REQUIRES: supports(type, kAvg).
void finish_reference(DataType type, std::byte* target, std::size_t count, std::size_t divisor);

}  // namespace tutti::internal::reduction
