// Streams and events of this process by handle. A thread that has found an object keeps it alive while it uses it, even
// if the handle is destroyed.
#pragma once

#include <fmt/core.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/handle.h"
#include "base/first_use.h"
#include "os/fork.h"
#include "os/mutex.h"

namespace tutti::internal::api {

template <class Object, HandleKind kKind>
class HandleTable final : public ForkAware {
 public:
  // `name`: "stream".
  static HandleTable& instance(const char* name) {
    // Never destroyed: user code may use handles during static destruction.
    static constinit FirstUse<HandleTable, Surplus::kKept> only;
    return only.get([name] { return HandleTable(name); });
  }

  Result<std::uint64_t> add(std::shared_ptr<Object> object) {
    const MutexLock lock(mutex_);
    if (free_.empty()) {
      if (entries_.size() == kMaxHandles) return Status::invalid_usage(fmt::format("there are too many {}s", name_));
      // Room for all entries that can ever be freed: freeing must not need memory.
      if (free_.capacity() <= entries_.size()) free_.reserve(2 * entries_.size() + 16);
      entries_.emplace_back();
      free_.push_back(entries_.size() - 1);
    }
    const std::uint64_t index = free_.back();
    free_.pop_back();
    Entry& entry = entries_[index];
    entry.object = std::move(object);
    entry.maker = ::getpid();
    entry.handle = make_handle(kKind, ++entry.generation, index);
    return entry.handle;
  }

  Result<std::shared_ptr<Object>> find(std::uint64_t handle) {
    const MutexLock lock(mutex_);
    Entry* const entry = valid(handle);
    if (entry == nullptr) return refusal(handle);
    return entry->object;
  }

  // The handle is stale from now on.
  Result<std::shared_ptr<Object>> take(std::uint64_t handle) {
    const MutexLock lock(mutex_);
    Entry* const entry = valid(handle);
    if (entry == nullptr) return refusal(handle);
    entry->handle = 0;
    // An entry whose generations are used up is not used again.
    if (entry->generation != std::numeric_limits<std::uint32_t>::max()) free_.push_back(index_of(handle));
    return std::move(entry->object);
  }

 private:
  struct Entry {
    std::uint64_t handle = 0;      // 0: free
    std::uint32_t generation = 0;  // of the handle, or of the last one
    bool inherited = false;        // from the process that this one was forked from
    pid_t maker = 0;
    std::shared_ptr<Object> object;
  };

  explicit HandleTable(const char* name) : name_(name) { enlist(); }

  void before_fork() override TUTTI_ACQUIRE(mutex_) { mutex_.lock(); }
  void after_fork_in_parent() override TUTTI_RELEASE(mutex_) { mutex_.unlock(); }
  // Threads that do not exist in the child may have been using the objects: they are not touched.
  void after_fork_in_child() override TUTTI_RELEASE(mutex_) {
    for (Entry& entry : entries_) entry.inherited = entry.handle != 0;
    mutex_.unlock();  // which this thread has locked
  }

  Entry* valid(std::uint64_t handle) TUTTI_REQUIRES(mutex_) {
    Entry* const entry = at(handle);
    return entry == nullptr || entry->inherited ? nullptr : entry;
  }
  Entry* at(std::uint64_t handle) TUTTI_REQUIRES(mutex_) {
    const std::uint64_t index = index_of(handle);
    return index < entries_.size() && entries_[index].handle == handle && handle != 0 ? &entries_[index] : nullptr;
  }
  Status refusal(std::uint64_t handle) TUTTI_REQUIRES(mutex_) {
    const Entry* const entry = at(handle);
    if (entry != nullptr) return inherited(fmt::format("the {}", name_), entry->maker);
    if (handle == 0) return Status::invalid_argument(fmt::format("{} is NULL", name_));
    return Status::invalid_argument(fmt::format("{} is not a handle of a{}{}: it was never created, or was destroyed",
                                                name_, name_[0] == 'e' ? "n " : " ", name_));
  }

  const char* const name_;
  Mutex mutex_;
  std::vector<Entry> entries_ TUTTI_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> free_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::internal::api
