// Tests that run many times slower under a sanitizer are repeated less there: every path through the code once.
#pragma once

namespace tutti::internal::test {

#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
inline constexpr bool kAnySanitizer = kThreadSanitizer || kAddressSanitizer;

}  // namespace tutti::internal::test
