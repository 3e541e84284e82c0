// Processor instructions that C++ does not expose.
#pragma once

#if defined(__x86_64__)
#include <emmintrin.h>
#elif !defined(__aarch64__)
#error "a kind of processor that is not known: x86-64 and arm64 are"
#endif

namespace tutti::internal {

// In a loop that polls memory: yields the core to its other hardware threads for tens of nanoseconds.
inline void pause_processor() {
#if defined(__x86_64__)
  _mm_pause();
#else
  asm volatile("isb" : : : "memory");  // "yield" does nothing on most
#endif
}

// Later instructions do not start, not even speculatively, before all earlier loads have completed.
inline void wait_for_loads() {
#if defined(__x86_64__)
  _mm_lfence();
#else
  asm volatile("dsb ishld\n\tisb" : : : "memory");
#endif
}

}  // namespace tutti::internal
