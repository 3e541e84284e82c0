#include "base/failure.h"

#include <algorithm>

namespace tutti {

bool FailureState::fail(Status status) {
  const std::lock_guard lock(mutex_);
  if (failed_.load(std::memory_order_relaxed)) return false;
  status_ = std::move(status);
  failed_.store(true, std::memory_order_release);
  return true;
}

Status FailureState::status() const {
  if (!failed()) return {};
  const std::lock_guard lock(mutex_);
  return status_;
}

void FailureState::set_departed(int rank) {
  const std::lock_guard lock(mutex_);
  departed_.push_back(rank);
  any_departed_.store(true, std::memory_order_release);
}

bool FailureState::departed(int rank) const {
  const std::lock_guard lock(mutex_);
  return std::find(departed_.begin(), departed_.end(), rank) != departed_.end();
}

}  // namespace tutti
