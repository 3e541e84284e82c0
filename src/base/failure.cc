#include "base/failure.h"

#include <algorithm>

namespace tutti::internal {

bool FailureState::fail(Status status) {
  const MutexLock lock(mutex_);
  if (failed_.load(std::memory_order_relaxed)) return false;
  status_ = std::move(status);
  failed_.store(true, std::memory_order_release);
  failed_now_.notify_all();
  return true;
}

bool FailureState::await(Deadline deadline) const {
  const MutexLock lock(mutex_);
  while (!failed() && failed_now_.wait_until(mutex_, deadline)) {
  }
  return failed();
}

Status FailureState::status() const {
  if (!failed()) return {};
  const MutexLock lock(mutex_);
  return status_;
}

void FailureState::set_departed(Departure departure) {
  const MutexLock lock(mutex_);
  departed_.push_back(departure);
  any_departed_.store(true, std::memory_order_release);
}

void FailureState::expect_departures(std::size_t ranks) {
  const MutexLock lock(mutex_);
  departed_.reserve(ranks);
}

bool FailureState::departed(int rank) const {
  const MutexLock lock(mutex_);
  return std::any_of(departed_.begin(), departed_.end(), [rank](const Departure& d) { return d.rank == rank; });
}

FailureState::Departure FailureState::departed_before(std::uint32_t number) const {
  const MutexLock lock(mutex_);
  const auto found = std::find_if(departed_.begin(), departed_.end(), [number](const Departure& d) {
    return static_cast<std::int32_t>(d.operations - number) < 0;
  });
  return found == departed_.end() ? Departure() : *found;
}

}  // namespace tutti::internal
