// A link through shared memory: see layout.h for the memory, pair.h for where it comes from, wakeup_fd.h for sleeping.
//
// Zero copy: a large push() whose source the peer can read in place (any memory between threads of one process,
// tuttiMemAlloc memory between processes) sends only where it is. The peer reads it there, and completed() passes it
// when the peer has consumed it. An operation that overwrites what it has sent would wait for that: between ranks with
// processors of their own it sends copies. In operations that say so (MemoryUse) other memory of processes is sent by
// zero copy too: the peer reads it by a system call (cross_memory.h).
#pragma once

#include <memory>

#include "base/config.h"
#include "transport/shm/layout.h"
#include "transport/shm/pair_link_memory.h"
#include "transport/transport.h"

namespace tutti::internal::transport::shm {

// From this size on, a source that the peer can read in place is sent by zero copy: below, the
// copy through a slot in the cache costs less than the second reader's misses.
inline constexpr std::size_t kZcopyBytes = 16 * 1024;
// A zero-copy message is at most this long, so that the peer starts early and the sender's bytes come free in order.
inline constexpr std::size_t kMostZcopyBytes = 256 * 1024;

// From this size on, what is sent from other memory is read by the peer's process itself, if it can (CrossMemory), in
// operations that gain by it. Two ranks on processors of their own, which exchange: all-gather 0.8 of the time through
// slots at 128 KiB, 0.7 at 256 KiB and 1 MiB, 0.85 at 4 and 16 MiB.
inline constexpr std::size_t kCrossMemoryBytes = 48 * 1024;
// From afar, and where ranks take turns: scatter of 32 KiB blocks by four ranks on two processors 0.65 of the time.
inline constexpr std::size_t kFarCrossMemoryBytes = 32 * 1024;

struct LinkOptions {
  int peer = -1;  // for messages
  // Ranks of this machine do not share processors: see demote_line(). Both sides must say the same: the layout of the
  // link's memory follows (turns_of()).
  bool own_processor = true;
  // How many slots this side fills with long messages before the peer consumes: from 2 to all.
  std::uint32_t slots_ahead = kSlots;
  // The peer's memory, if that is another process: kAuto where that pays in an operation that begins, kAlways in every
  // one that may (MemoryUse).
  MemoryReads reads = MemoryReads::kAuto;
  bool far = false;  // the peer's processor, until it is measured (distance.h); tests say so
};
inline Turns turns_of(const LinkOptions& options) {
  return options.own_processor ? Turns::kNone : Turns::kTaken;
}

// Between processes. `same_process`: the peer is another thread of this one. REQUIRES: memory->connect() has said true.
std::unique_ptr<Link> make_link(std::unique_ptr<PairLinkMemory> memory, bool same_process, const LinkOptions& options);

// Between threads of one process: both make a link of the same private segment. The peer's wakeup fd outlives it.
std::unique_ptr<Link> make_private_link(std::unique_ptr<LinkMemory> memory, int peer_wakeup_fd,
                                        const LinkOptions& options);

}  // namespace tutti::internal::transport::shm
