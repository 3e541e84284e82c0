// Reading the ordinary memory of a peer process with process_vm_readv(2): one copy, where slots take two. Whether the
// kernel permits it is found out for each pair, by reading a word that the peer has named; where it does not (another
// user, no ptrace permission, a container's filter, another pid namespace), slots carry all.
//
// Threads: offer() and probe() by one at a time; all else any.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/shm/layout.h"

namespace tutti::internal::transport::shm {

// Under Yama's mode 1 (kernel.yama.ptrace_scope) a process is read by its ancestors, and by those that it permits. This
// permits any process of the same user to read this one and to attach to it, until it ends: only what has asked for
// reads at any cost (TUTTI_CROSS_MEMORY=always) does that. Without Yama, or in another mode, it does nothing.
void permit_siblings();

class CrossMemory {
 public:
  // `own` is what this side writes of the pair; `socket` is connected to the peer, and says which process that is.
  CrossMemory(PairMemory* own, int socket, int peer);
  CrossMemory(const CrossMemory&) = delete;
  CrossMemory& operator=(const CrossMemory&) = delete;

  // Names this process's memory to the peer. `permits`: permit_siblings() first.
  void offer(bool permits);
  // Finds out, as soon as the peer has named its word, whether this side can read the peer's memory; tells it so.
  void probe(const PairMemory* theirs);
  [[nodiscard]] bool probed() const { return probed_.load(std::memory_order_acquire); }
  [[nodiscard]] bool can_read() const { return can_read_.load(std::memory_order_acquire); }
  // Whether the peer has found that it can read this side's memory.
  [[nodiscard]] bool peer_can_read() const;

  // Returns 0 if all n bytes from `address` of the peer have been read, else what stands in the way: an errno. ESRCH:
  // the peer has ended.
  [[nodiscard]] int read(std::byte* target, std::uint64_t address, std::size_t n) const;
  // Whether the first and the last of these bytes of this process can be read so: not what a device has mapped.
  [[nodiscard]] static bool readable(const std::byte* begin, std::size_t n);

 private:
  PairMemory& own_;
  const int peer_;
  const pid_t peer_process_;
  // Written once, before probed_ and can_read_.
  std::atomic<const PairMemory*> theirs_{nullptr};
  std::atomic<bool> probed_{false};
  std::atomic<bool> can_read_{false};
  // By which the peer knows this process. Random.
  std::uint64_t word_ = 0;
  // Of the peer: read again with its bytes, since its pid may be another process's when it has ended.
  std::uint64_t peer_word_address_ = 0;
  std::uint64_t peer_word_ = 0;
};

}  // namespace tutti::internal::transport::shm
