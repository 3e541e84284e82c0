// Memory that peers on this machine can map: what tuttiMemAlloc hands out. Process-wide.
//
// Ownership: the registry owns each region until free(); links hold only ids. A peer that has mapped a
// region keeps its own mapping until it is told that the region is gone (peer_regions.h).
//
// A forked child has a registry of the same regions: the same memory, shared with its parent. Each of the two frees
// for itself.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <shared_mutex>

#include "base/fork.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tutti::transport::shm {

class RegionRegistry final : public ForkAware {
 public:
  struct Place {
    std::uint64_t region = 0;  // 0: not inside one region
    std::size_t offset = 0;
  };

  static RegionRegistry& instance();

  // Zero-filled memory of at least `bytes` bytes, aligned to a page. REQUIRES: bytes > 0. Any thread.
  Result<void*> allocate(std::size_t bytes);
  // kInvalidArgument if `address` did not come from allocate(). Any thread.
  Status free(void* address);

  // The region that contains all of [address, address + bytes). Any thread.
  [[nodiscard]] Place find(const void* address, std::size_t bytes) const;
  // A duplicate of the region's descriptor, and its size; an invalid descriptor if it is gone.
  [[nodiscard]] UniqueFd duplicate_fd(std::uint64_t region, std::size_t* bytes) const;
  // Changes with every free(): a link then looks which of its announced regions are gone.
  [[nodiscard]] std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  [[nodiscard]] bool exists(std::uint64_t region) const;

 private:
  RegionRegistry() { enlist(); }
  void before_fork() override { mutex_.lock(); }
  void after_fork_in_parent() override { mutex_.unlock(); }
  // A thread of another number could not unlock it.
  void after_fork_in_child() override { new (&mutex_) std::shared_mutex; }

  struct Region {
    std::uint64_t id;
    std::size_t bytes;
    UniqueFd fd;
  };
  mutable std::shared_mutex mutex_;
  std::map<const std::byte*, Region> regions_;  // by first address
  std::atomic<std::size_t> count_{0};           // regions_.size(), for the common case of none
  std::atomic<std::uint64_t> generation_{0};
  std::uint64_t next_id_ = 1;
};

}  // namespace tutti::transport::shm
