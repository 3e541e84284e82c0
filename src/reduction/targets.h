// Internal to reduction: the tables of kernels, one for each SIMD target (Highway's HWY_TARGET bits), and the functions
// of the kernels' translation units that fill them. Tests use it to run every target of the processor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/float_mode.h"
#include "base/types.h"
#include "reduction/reduction.h"

namespace tutti::internal::reduction {

struct Table {
  std::array<std::array<Kernels, kReduceOps>, kDataTypes> kernels{};

  Kernels& at(DataType type, ReduceOp op) {
    return kernels[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
  }
  const Kernels& at(DataType type, ReduceOp op) const {
    return kernels[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
  }
};

// Writes the entries of one group of datatypes.
using Fill = void (*)(Table&);

// Defines a filler of all targets: in a source that Highway compiles for each of them, `fill` has as many definitions,
// which only Highway's macros can name.
#define TUTTI_FILLER(filler, fill)                 \
  Fill filler(std::int64_t target) {               \
    switch (target) {                              \
      case HWY_SSE4: return HWY_CHOOSE_SSE4(fill); \
      case HWY_AVX2: return HWY_CHOOSE_AVX2(fill); \
      case HWY_AVX3: return HWY_CHOOSE_AVX3(fill); \
      case HWY_NEON: return HWY_CHOOSE_NEON(fill); \
      default: return HWY_CHOOSE_FALLBACK(fill);   \
    }                                              \
  }

// The fillers compiled for `target`; for a target that was not compiled, the baseline's.
Fill integer_filler(std::int64_t target);
Fill float_filler(std::int64_t target);
Fill half_filler(std::int64_t target);
Fill float8_filler(std::int64_t target);
Fill complex_filler(std::int64_t target);
Fill logic_filler(std::int64_t target);

// Runs a kernel in the default floating-point mode.
void in_default_mode(Combine kernel, std::byte* target, const std::byte* a, const std::byte* b, std::size_t count);
void in_default_mode(CombineTwice kernel, std::byte* target, std::byte* also, const std::byte* a, const std::byte* b,
                     std::size_t count);
void in_default_mode(Finish kernel, std::byte* target, std::size_t count, std::size_t divisor);
// Whether a kernel must call itself through in_default_mode(). The check takes a nanosecond.
template <bool floats>
inline bool leaves_default_mode() {
  return floats && !FloatMode::current().is_default();
}

// Targets that are compiled in and that this processor can run, best first; never empty.
std::vector<std::int64_t> runnable_targets();
const char* target_name(std::int64_t target);
// `target` is one of runnable_targets().
Table make_table(std::int64_t target);

}  // namespace tutti::internal::reduction
