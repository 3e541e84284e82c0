// What has no name in C++ and each kind of processor has its own instruction for.
#pragma once

#if defined(__x86_64__)
#include <emmintrin.h>
#elif !defined(__aarch64__)
#error "a kind of processor that is not known: x86-64 and arm64 are"
#endif

namespace tutti::internal {

// In a loop that waits for memory: gives way to the core's other threads, for tens of nanoseconds.
inline void pause_processor() {
#if defined(__x86_64__)
  _mm_pause();
#else
  asm volatile("isb" : : : "memory");  // "yield" does nothing on most
#endif
}

// What is behind it does not begin, not even ahead of time, before all loads before it have ended.
inline void wait_for_loads() {
#if defined(__x86_64__)
  _mm_lfence();
#else
  asm volatile("dsb ishld\n\tisb" : : : "memory");
#endif
}

}  // namespace tutti::internal
