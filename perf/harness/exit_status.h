// The exit statuses of the perf programs, besides 0.
#pragma once

namespace tutti::internal::perf {

inline constexpr int kFailureStatus = 1;
inline constexpr int kUsageStatus = 2;

}  // namespace tutti::internal::perf
