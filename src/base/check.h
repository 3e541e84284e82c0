// Assertions of internal invariants, in debug builds and builds with sanitizers (meson.build). They cost other builds
// nothing.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace tutti::internal {

#ifdef TUTTI_DEBUG_CHECKS
inline constexpr bool kDebugChecks = true;
#else
inline constexpr bool kDebugChecks = false;
#endif

// Ends the process if `holds` is false; `what` describes the condition.
inline void debug_check(bool holds, const char* what) {
  if constexpr (kDebugChecks) {
    if (holds) [[likely]]
      return;
    (void)std::fprintf(stderr, "tutti: internal error: %s\n", what);
    std::abort();
  }
}

}  // namespace tutti::internal
