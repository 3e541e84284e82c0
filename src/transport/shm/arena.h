// Memory that one process gives another to read: a memfd that grows, from which the links of the two take their parts.
// It travels over a Unix socket, so no limit of /dev/shm applies and nothing is left behind by a crash.
//
// Threads: one at a time. The memory itself is used at the same time by both processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/status.h"
#include "os/unique_fd.h"

namespace tutti::internal::transport::shm {

// Where it is mapped, whole: the addresses of what has been handed out stay.
inline constexpr std::size_t kExtentBytes = std::size_t{8} << 20;

// Whether this process can make such memory and map it: what a container's filter, a kernel or a limit refuses.
Status try_shared_memory();
// The same, tried once a process: the next calls return what the first one found.
Status probe_shared_memory();
// What to do if it cannot.
inline constexpr const char* kSharedMemoryFix =
    "allow memfd_create(2) and descriptors in sendmsg(2) and recvmsg(2) (the container's seccomp filter, SELinux, "
    "sysctl vm.memfd_noexec below 2), raise ulimit -f and ulimit -v";

// Whether the memory behind the descriptor is sealed against shrinking, which would kill a process that has it mapped
// (SIGBUS).
bool cannot_shrink(int fd);

// Of the process that writes.
class Arena {
 public:
  // `page_bytes`: of the system's pages, 0: as it says; a power of two from 4096 on.
  static Result<Arena> create(std::size_t page_bytes = 0);
  Arena(Arena&&) = default;
  Arena& operator=(Arena&&) = delete;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // From here on short blocks begin with another one of those that share pages. A rank that looks at the same thing in
  // the memory of many peers so finds it in as many sets of its cache, where each has a number of its own. With the
  // same place in all of them a look at 31 peers takes 71 ns in place of 11, at 63 peers 164 in place of 42; from 127
  // on it is the pages that cost (470 and 410 ns; 255 peers 950 and 820).
  void spread(std::uint32_t number) { number_ = number; }
  // From here on pages of short blocks come from this NUMA node; -1: from that of the thread that takes one first.
  void settle(int node) { node_ = node; }

  struct Block {
    std::byte* memory = nullptr;
    std::uint64_t offset = 0;  // by which the reader finds it
  };
  // Filled with zeros. Of a multiple of 4096 bytes, which has pages of its own, or of a part of some that many of the
  // same size share. Not more than an extent.
  Result<Block> allocate(std::size_t bytes);
  // Of what allocate(bytes) has returned, once nobody reads it any more. Pages of its own go back to the system.
  void free(const Block& block, std::size_t bytes) noexcept;
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  Arena(UniqueFd fd, std::size_t page_bytes) : fd_(std::move(fd)), page_bytes_(page_bytes) {}
  // From a multiple of `alignment` bytes to another one.
  Result<Block> take(std::size_t bytes, std::size_t alignment);
  void prefer_own_node(const Block& slab) const;
  UniqueFd fd_;
  std::size_t page_bytes_;
  std::vector<std::byte*> extents_;
  std::uint64_t used_ = 0;
  std::uint32_t number_ = 0;
  int node_ = -1;
  std::map<std::size_t, std::vector<Block>> free_;  // by their size
};

// Of the process that reads.
class ArenaView {
 public:
  // kRemoteError if it could shrink.
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
