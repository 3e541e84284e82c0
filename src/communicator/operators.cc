#include "communicator/operators.h"

#include <fmt/core.h>

#include <atomic>
#include <cstdint>
#include <utility>

namespace tutti::internal {
namespace {

constexpr std::int64_t kLast = 0x7ffffffe;  // tuttiRedOpMax is no value
std::atomic<std::int64_t> next_handle{Operators::kFirst};

Status none(int handle) {
  return Status::invalid_argument(fmt::format(
      "operator {} is none of this communicator's: it was made for another one, was never made, or is destroyed",
      handle));
}

}  // namespace

Result<int> Operators::add(std::shared_ptr<const CustomOperator> made) {
  const std::int64_t handle = next_handle.fetch_add(1, std::memory_order_relaxed);
  if (handle > kLast) return Status::invalid_usage("this process has made too many operators: destroyed ones count");
  const MutexLock lock(mutex_);
  operators_.emplace(static_cast<int>(handle), std::move(made));
  return static_cast<int>(handle);
}

Result<std::shared_ptr<const CustomOperator>> Operators::find(int handle) const {
  const MutexLock lock(mutex_);
  const auto at = operators_.find(handle);
  if (at == operators_.end()) return none(handle);
  return at->second;
}

Status Operators::remove(int handle) {
  const MutexLock lock(mutex_);
  return operators_.erase(handle) == 1 ? Status() : none(handle);
}

}  // namespace tutti::internal
