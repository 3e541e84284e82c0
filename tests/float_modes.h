// The floating-point modes in which a program may run, for tests.
#pragma once

#include <algorithm>
#include <array>
#include <cfenv>
#include <stdexcept>
#include <string_view>

#include "base/float_mode.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tutti::internal::test {

struct NamedMode {
  const char* name;
  int rounding;
  bool flushes;        // denormal operands and results are 0
  bool traps = false;  // every exception, also inexact results, ends the process
};

inline constexpr std::array kModes = {
    NamedMode{"flushes denormals", FE_TONEAREST, true}, NamedMode{"rounds up", FE_UPWARD, false},
    NamedMode{"rounds down", FE_DOWNWARD, false}, NamedMode{"rounds to zero and flushes", FE_TOWARDZERO, true},
    NamedMode{"traps exceptions", FE_TONEAREST, false, true}};

inline const NamedMode& mode_named(std::string_view name) {
  const auto* const mode =
      std::find_if(kModes.begin(), kModes.end(), [&](const NamedMode& m) { return m.name == name; });
  return mode != kModes.end() ? *mode : throw std::invalid_argument("no such mode");
}

// In the calling thread.
inline void set_mode(const NamedMode& mode) {
  FloatMode().set();
  std::fesetround(mode.rounding);
  if (mode.traps) (void)::feenableexcept(FE_ALL_EXCEPT);  // not every processor can
  if (!mode.flushes) return;
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);  // flush to zero, denormals are zero
#elif defined(__aarch64__)
  unsigned long control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" : : "r"(control | 1UL << 24));
#endif
}

inline void set_default_mode() {
  (void)::fedisableexcept(FE_ALL_EXCEPT);
  std::feclearexcept(FE_ALL_EXCEPT);
  std::fesetround(FE_TONEAREST);
  FloatMode().set();
}

}  // namespace tutti::internal::test
