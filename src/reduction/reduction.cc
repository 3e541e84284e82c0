// Chooses the SIMD target, once, and answers from its table.
#include "reduction/reduction.h"

#include <algorithm>
#include <cstring>

#include "base/first_use.h"
#include "reduction/highway_targets.h"
#include "reduction/targets.h"

namespace tutti::internal::reduction {
namespace {

struct Chosen {
  std::int64_t target;
  Table table;
};

// The processor's features do not change while it runs.
const Chosen& chosen() {
  static constinit FirstUse<const Chosen> instance;
  return instance.get([] {
    const std::int64_t target = runnable_targets().front();
    return Chosen{target, make_table(target)};
  });
}

}  // namespace

std::vector<std::int64_t> runnable_targets() {
  std::vector<std::int64_t> targets;
  // Highway numbers better targets lower. The baseline is what the whole program was compiled for.
  const std::uint64_t runnable = static_cast<std::uint64_t>((hwy::SupportedTargets() | HWY_STATIC_TARGET) &
                                                            static_cast<std::int64_t>(HWY_TARGETS));
  for (std::uint64_t rest = runnable; rest != 0; rest &= rest - 1) {
    targets.push_back(static_cast<std::int64_t>(rest & (~rest + 1)));
  }
  return targets;
}

const char* target_name(std::int64_t target) {
  return hwy::TargetName(target);
}

Table make_table(std::int64_t target) {
  Table table;
  integer_filler(target)(table);
  float_filler(target)(table);
  half_filler(target)(table);
  float8_filler(target)(table);
  complex_filler(target)(table);
  logic_filler(target)(table);
  return table;
}

void in_default_mode(Combine kernel, std::byte* target, const std::byte* a, const std::byte* b, std::size_t count) {
  const InFloatMode mode;
  kernel(target, a, b, count);
}

void in_default_mode(CombineTwice kernel, std::byte* target, std::byte* also, const std::byte* a, const std::byte* b,
                     std::size_t count) {
  const InFloatMode mode;
  kernel(target, also, a, b, count);
}

void in_default_mode(Finish kernel, std::byte* target, std::size_t count, std::size_t divisor) {
  const InFloatMode mode;
  kernel(target, count, divisor);
}

const Kernels& kernels(DataType type, ReduceOp op) {
  return chosen().table.at(type, op);
}

void scale(DataType type, std::byte* target, const std::byte* source, const void* factor, std::size_t count) {
  const std::size_t size = size_of(type);
  alignas(64) std::byte factors[4096];
  const std::size_t most = sizeof factors / size;
  for (std::size_t i = 0; i < std::min(most, count); ++i) std::memcpy(factors + i * size, factor, size);
  const Combine multiply = kernels(type, ReduceOp::kProd).combine;
  for (std::size_t i = 0; i < count; i += most) {
    multiply(target + i * size, source + i * size, factors, std::min(most, count - i));
  }
}

const char* simd_target() {
  return target_name(chosen().target);
}

}  // namespace tutti::internal::reduction
