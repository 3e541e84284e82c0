// Objects that the program creates for one communicator and names by a number: operators, datatypes.
#pragma once

#include <fmt/core.h>

#include <map>
#include <memory>
#include <utility>

#include "base/status.h"
#include "os/mutex.h"

namespace tutti::internal {

// Above all built-in values. Two objects of one process never have the same number.
inline constexpr int kFirstMade = 1000;
constexpr bool is_made(int handle) {
  return handle >= kFirstMade;
}
// kInvalidUsage if the process has used all numbers. Any thread.
Result<int> next_made();

// For immutable objects. Any thread.
template <class T>
class MadeTable {
 public:
  // `noun`: what the objects are called in errors.
  explicit MadeTable(const char* noun) : noun_(noun) {}

  Result<int> add(std::shared_ptr<const T> made) {
    Result<int> handle = next_made();
    if (!handle.is_ok()) return handle;
    const MutexLock lock(mutex_);
    made_.emplace(*handle, std::move(made));
    return handle;
  }
  // kInvalidArgument for a handle that is not in this table.
  Result<std::shared_ptr<const T>> find(int handle) const {
    const MutexLock lock(mutex_);
    const auto at = made_.find(handle);
    if (at == made_.end()) return none(handle);
    return at->second;
  }
  // Operations in flight keep the object.
  Status remove(int handle) {
    if (!is_made(handle)) return Status::invalid_argument(fmt::format("a built-in {} cannot be destroyed", noun_));
    const MutexLock lock(mutex_);
    return made_.erase(handle) == 1 ? Status() : none(handle);
  }

 private:
  [[nodiscard]] Status none(int handle) const {
    return Status::invalid_argument(fmt::format(
        "{} {} does not belong to this communicator: it was made for another one, was never made, or is destroyed",
        noun_, handle));
  }

  const char* const noun_;
  mutable Mutex mutex_;
  std::map<int, std::shared_ptr<const T>> made_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::internal
