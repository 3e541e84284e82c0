// The processor's counter of time: cheaper than any clock, the same on all processors of a machine, in units that only
// a comparison with a clock shows.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace tutti::internal {

inline std::uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  std::uint64_t now = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(now));
  return now;
#endif
}

}  // namespace tutti::internal
