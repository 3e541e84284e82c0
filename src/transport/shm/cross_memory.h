// Reading the ordinary memory of a peer process with process_vm_readv(2): one copy, where slots take two. Whether the
// kernel permits it is found out for each pair, by reading a word that the peer has named; where it does not (another
// user, no ptrace permission, a container's filter, another pid namespace), slots carry all.
//
// Threads: as the link (transport.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "transport/shm/segment.h"

namespace tutti::internal::transport::shm {

class CrossMemory {
 public:
  // `side` of the segment is this one's; `socket` is connected to the peer, and says which process that is.
  CrossMemory(SegmentMemory* memory, int side, int socket, int peer);
  CrossMemory(const CrossMemory&) = delete;
  CrossMemory& operator=(const CrossMemory&) = delete;

  // Finds out, as soon as the peer has named its word, whether this side can read the peer's memory; tells it so.
  void probe();
  [[nodiscard]] bool can_read() const { return can_read_; }
  // Whether the peer has found that it can read this side's memory.
  [[nodiscard]] bool peer_can_read() const;

  // Returns 0 if all n bytes from `address` of the peer have been read, else what stands in the way: an errno. ESRCH:
  // the peer has ended.
  [[nodiscard]] int read(std::byte* target, std::uint64_t address, std::size_t n) const;
  // Whether the first and the last of these bytes of this process can be read so: not what a device has mapped.
  [[nodiscard]] static bool readable(const std::byte* begin, std::size_t n);

 private:
  SegmentMemory& memory_;
  const int side_;
  const int peer_;
  pid_t peer_process_ = 0;
  bool probed_ = false;
  bool can_read_ = false;
  // By which the peer knows this process. Random.
  std::uint64_t word_ = 0;
  // Of the peer: read again with its bytes, since its pid may be another process's when it has ended.
  std::uint64_t peer_word_address_ = 0;
  std::uint64_t peer_word_ = 0;
};

}  // namespace tutti::internal::transport::shm
