// Reading the ordinary memory of a peer process with process_vm_readv(2): one copy, where slots need two. Each pair
// tests whether the kernel permits it, by reading a word that the peer has named. If the kernel refuses (another user,
// no ptrace permission, a container's filter, another pid namespace), slots carry all data.
//
// Threads: offer() and probe() by one at a time; the others any.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/shm/layout.h"

namespace tutti::internal::transport::shm {

// Under Yama's mode 1 (kernel.yama.ptrace_scope) a process can be read by its ancestors, and by processes that it
// permits. This permits any process of the same user to read this one and to attach to it, until it ends: it is called
// only if reads are required (TUTTI_CROSS_MEMORY=always). Without Yama, or in another mode, it does nothing.
void permit_siblings();

class CrossMemory {
 public:
  // `own` is this side's part of the pair's memory; `socket` is connected to the peer and identifies its process.
  CrossMemory(PairMemory* own, int socket, int peer);
  CrossMemory(const CrossMemory&) = delete;
  CrossMemory& operator=(const CrossMemory&) = delete;

  // Tells the peer where to find this process's word. `permits`: calls permit_siblings() first.
  void offer(bool permits);
  // As soon as the peer has named its word, tests whether this side can read the peer's memory, and tells the peer.
  void probe(const PairMemory* theirs);
  [[nodiscard]] bool probed() const { return probed_.load(std::memory_order_acquire); }
  [[nodiscard]] bool can_read() const { return can_read_.load(std::memory_order_acquire); }
  // Whether the peer has found that it can read this side's memory.
  [[nodiscard]] bool peer_can_read() const;

  // Returns 0 if all n bytes from `address` of the peer have been read, else an errno. ESRCH: the peer has ended.
  [[nodiscard]] int read(std::byte* target, std::uint64_t address, std::size_t n) const;
  // Whether the first and the last of these bytes of this process can be read that way: not memory that a device has
  // mapped.
  [[nodiscard]] static bool readable(const std::byte* begin, std::size_t n);

 private:
  PairMemory& own_;
  const int peer_;
  const pid_t peer_process_;
  // Written once, before probed_ and can_read_.
  std::atomic<const PairMemory*> theirs_{nullptr};
  std::atomic<bool> probed_{false};
  std::atomic<bool> can_read_{false};
  // A random word by which the peer recognises this process.
  std::uint64_t word_ = 0;
  // The peer's. Each read includes it again, because after the peer's end its pid may belong to another process.
  std::uint64_t peer_word_address_ = 0;
  std::uint64_t peer_word_ = 0;
};

}  // namespace tutti::internal::transport::shm
