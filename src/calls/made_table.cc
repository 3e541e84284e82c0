#include "calls/made_table.h"

#include <atomic>
#include <cstdint>

namespace tutti::internal {
namespace {

constexpr std::int64_t kLast = 0x7ffffffe;  // the largest value of the public enumerations is not a valid value
std::atomic<std::int64_t> next_handle{kFirstMade};

}  // namespace

Result<int> next_made() {
  const std::int64_t handle = next_handle.fetch_add(1, std::memory_order_relaxed);
  if (handle <= kLast) return static_cast<int>(handle);
  return Status::invalid_usage("this process has made too many operators and datatypes: destroyed ones count");
}

}  // namespace tutti::internal
