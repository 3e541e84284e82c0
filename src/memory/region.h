// Memory that peers on this machine can map: what tuttiMemAlloc hands out. Process-wide.
//
// Ownership: the registry owns each region until free(); links hold only ids. A peer that has mapped a
// region keeps its own mapping until it is told that the region is gone (transport/shm/pair.h).
//
// A forked child has a registry of the same regions: the same memory, shared with its parent. Each of the two frees
// for itself.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "os/fork.h"
#include "os/mutex.h"
#include "os/unique_fd.h"

namespace tutti::internal::memory {

class RegionRegistry final : public ForkAware {
 public:
  struct Location {
    std::uint64_t region = 0;  // 0: not inside one region
    std::size_t offset = 0;
  };

  static RegionRegistry& instance();

  // Zero-filled memory of at least `bytes` bytes, aligned to a page. Where the system refuses memory that can be shared
  // it is ordinary memory, which find() does not know. REQUIRES: bytes > 0. Any thread.
  Result<void*> allocate(std::size_t bytes);
  // kInvalidArgument if `address` did not come from allocate(). Any thread.
  Status free(void* address);

  // The region that contains all of [address, address + bytes). Any thread; takes no lock and writes no memory, as
  // every call with buffers of some size asks.
  [[nodiscard]] Location find(const void* address, std::size_t bytes) const;
  // A duplicate of the region's descriptor, and its size; an invalid descriptor if it is gone.
  [[nodiscard]] UniqueFd duplicate_fd(std::uint64_t region, std::size_t* bytes) const;
  // Changes with every free(): a link then looks which of its announced regions are gone.
  [[nodiscard]] std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  [[nodiscard]] bool exists(std::uint64_t region) const;

 private:
  RegionRegistry() { enlist(); }
  void before_fork() override TUTTI_ACQUIRE(mutex_) { mutex_.lock(); }
  void after_fork_in_parent() override TUTTI_RELEASE(mutex_) { mutex_.unlock(); }
  void after_fork_in_child() override TUTTI_RELEASE(mutex_) { mutex_.unlock(); }

  struct Region {
    std::uint64_t id;
    std::size_t bytes;
    UniqueFd fd;  // invalid: ordinary memory
  };
  // What find() searches. There are two, used in turn: a change is written to the one that is out of use, and then
  // version_ goes on, whose lowest bit says which is in use. A thread that has searched one looks whether version_ is
  // as before: then nobody has begun to write to it meanwhile. Nobody waits for a thread that changes something.
  struct RegionRange {
    std::atomic<const std::byte*> base;
    std::atomic<std::size_t> bytes;
    std::atomic<std::uint64_t> id;
  };
  struct Table {
    std::atomic<const RegionRange*> entries{nullptr};  // by base
    std::atomic<std::size_t> count{0};
    // All that `entries` has ever been, the latest last, each twice as long as the one before: somebody may still
    // be reading the others.
    std::vector<std::vector<RegionRange>> storage;
  };
  // Makes room for one more region; may throw.
  void prepare() TUTTI_REQUIRES(mutex_);
  // Shows find() what regions_ is now. REQUIRES: prepare() if there are more than before.
  void publish() TUTTI_REQUIRES(mutex_);
  [[nodiscard]] static Location search(const Table& table, const std::byte* address, std::size_t bytes);

  mutable Mutex mutex_;                                                  // find() takes none
  std::map<const std::byte*, Region> regions_ TUTTI_GUARDED_BY(mutex_);  // by first address
  std::array<Table, 2> tables_;
  std::atomic<std::uint64_t> version_{0};
  std::atomic<std::uint64_t> generation_{0};
  std::uint64_t next_id_ TUTTI_GUARDED_BY(mutex_) = 1;
};

}  // namespace tutti::internal::memory
