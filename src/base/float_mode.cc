#include "base/float_mode.h"

namespace tutti::internal {

void FloatMode::set() const {
  write(control_);
}

void FloatMode::write([[maybe_unused]] Control control) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(control);
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(control));
#endif
}

}  // namespace tutti::internal
