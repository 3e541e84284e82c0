// Memory that peers on this machine can map: the memory of tuttiMemAlloc. Process-wide.
//
// Ownership: the registry owns each region until free(); links hold only ids. A peer that has mapped a region keeps its
// mapping until it is notified that the region has been freed (transport/shm/pair.h).
//
// A forked child has a registry of the same regions: the same memory, shared with its parent. Each process frees its
// own mapping.
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

  // Zero-filled memory of at least `bytes` bytes, aligned to a page. If the system refuses shareable memory, it is
  // ordinary memory, which find() does not know. REQUIRES: bytes > 0. Any thread.
  Result<void*> allocate(std::size_t bytes);
  // kInvalidArgument if `address` did not come from allocate(). Any thread.
  Status free(void* address);

  // The region that contains all of [address, address + bytes). Any thread; takes no lock and writes no memory, because
  // every call with larger buffers uses it.
  [[nodiscard]] Location find(const void* address, std::size_t bytes) const;
  // A duplicate of the region's descriptor, and its size; an invalid descriptor if the region has been freed.
  [[nodiscard]] UniqueFd duplicate_fd(std::uint64_t region, std::size_t* bytes) const;
  // Changes with every free(): a link then checks which of its announced regions have been freed.
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
  // The tables that find() searches. There are two, used alternately. A change is written to the unused one; then
  // version_ is incremented, whose lowest bit selects the table in use. After a search, a thread checks that version_
  // is unchanged: then no thread has begun to write to this table. So no reader waits for a writer.
  struct RegionRange {
    std::atomic<const std::byte*> base;
    std::atomic<std::size_t> bytes;
    std::atomic<std::uint64_t> id;
  };
  struct Table {
    std::atomic<const RegionRange*> entries{nullptr};  // by base
    std::atomic<std::size_t> count{0};
    // All arrays that `entries` has ever pointed to, the latest last, each twice as long as the one before: a thread
    // may still be reading an older one.
    std::vector<std::vector<RegionRange>> storage;
  };
  // Makes room for one more region; may throw.
  void prepare() TUTTI_REQUIRES(mutex_);
  // Makes the present regions_ visible to find(). REQUIRES: prepare() if there are more than before.
  void publish() TUTTI_REQUIRES(mutex_);
  [[nodiscard]] static Location search(const Table& table, const std::byte* address, std::size_t bytes);

  mutable Mutex mutex_;                                                  // find() does not lock it
  std::map<const std::byte*, Region> regions_ TUTTI_GUARDED_BY(mutex_);  // by first address
  std::array<Table, 2> tables_;
  std::atomic<std::uint64_t> version_{0};
  std::atomic<std::uint64_t> generation_{0};
  std::uint64_t next_id_ TUTTI_GUARDED_BY(mutex_) = 1;
};

}  // namespace tutti::internal::memory
