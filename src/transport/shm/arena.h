// Memory that one process lets another read: a memfd that grows, from which the links of the two get their memory. It
// is sent over a Unix socket, so no limit of /dev/shm applies and a crash leaves nothing behind.
//
// Threads: one at a time. Both processes use the memory itself at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/status.h"
#include "os/unique_fd.h"

namespace tutti::internal::transport::shm {

// It is mapped in extents of this size, so that the addresses of allocated blocks do not change.
inline constexpr std::size_t kExtentBytes = std::size_t{8} << 20;

// Whether this process can make such memory and map it: a container's filter, a kernel or a limit may refuse that.
Status try_shared_memory();
// The same, tried once in a process: later calls return the first result.
Status probe_shared_memory();
// What to do if the process cannot.
inline constexpr const char* kSharedMemoryFix =
    "allow memfd_create(2) and descriptors in sendmsg(2) and recvmsg(2) (the container's seccomp filter, SELinux, "
    "sysctl vm.memfd_noexec below 2), raise ulimit -f and ulimit -v";

// Whether the memory behind the descriptor is sealed against shrinking, which would kill a process that has it mapped
// (SIGBUS).
bool cannot_shrink(int fd);

// For the process that writes.
class Arena {
 public:
  // `page_bytes`: the system's page size, 0: ask the system; a power of two from 4096 on.
  static Result<Arena> create(std::size_t page_bytes = 0);
  Arena(Arena&&) = default;
  Arena& operator=(Arena&&) = delete;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // From now on, the first of the short blocks that share pages depends on `number`. A rank that reads the same word in
  // the memory of many peers then finds the words in different sets of its cache, if each peer has its own number. With
  // the same position in all of them a look at 31 peers takes 71 ns in place of 11, at 63 peers 164 in place of 42;
  // from 127 on the number of pages dominates (470 and 410 ns; 255 peers 950 and 820).
  void spread(std::uint32_t number) { number_ = number; }
  // From now on pages of short blocks come from this NUMA node; -1: from the node of the thread that touches one first.
  void settle(int node) { node_ = node; }

  struct Block {
    std::byte* memory = nullptr;
    std::uint64_t offset = 0;  // the reader's name for it
  };
  // Zero-filled. A multiple of 4096 bytes gets its own pages; shorter blocks of one size share pages. At most an
  // extent.
  Result<Block> allocate(std::size_t bytes);
  // Returns a block of allocate(bytes) that no process reads any more. Its own pages go back to the system.
  void free(const Block& block, std::size_t bytes) noexcept;
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  Arena(UniqueFd fd, std::size_t page_bytes) : fd_(std::move(fd)), page_bytes_(page_bytes) {}
  // Begins and ends at a multiple of `alignment` bytes.
  Result<Block> take(std::size_t bytes, std::size_t alignment);
  void prefer_own_node(const Block& slab) const;
  UniqueFd fd_;
  std::size_t page_bytes_;
  std::vector<std::byte*> extents_;
  std::uint64_t used_ = 0;
  std::uint32_t number_ = 0;
  int node_ = -1;
  std::map<std::size_t, std::vector<Block>> free_;  // by size
};

// For the process that reads.
class ArenaView {
 public:
  // kRemoteError if the memory could shrink.
  static Result<ArenaView> open(UniqueFd fd);
  ArenaView(ArenaView&&) = default;
  ArenaView& operator=(ArenaView&&) = delete;
  ArenaView(const ArenaView&) = delete;
  ArenaView& operator=(const ArenaView&) = delete;
  ~ArenaView();

  // kRemoteError if there is no such block.
  Result<const std::byte*> at(std::uint64_t offset, std::size_t bytes);

 private:
  explicit ArenaView(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
  std::map<std::uint64_t, const std::byte*> extents_;
};

}  // namespace tutti::internal::transport::shm
