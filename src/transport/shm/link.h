// A link through shared memory: see layout.h for the memory, pair.h for its allocation, wakeup_fd.h for sleeping.
//
// Zero copy: a large push() whose source the peer can read in place (any memory between threads of one process,
// tuttiMemAlloc memory between processes) sends only the position of the source. The peer reads it there, and
// completed() passes it when the peer has consumed it. An operation that overwrites input that it has sent would wait
// for that: between ranks with their own processors it sends copies. In operations that permit it (MemoryUse), other
// memory of processes is sent by zero copy too: the peer reads it by a system call (cross_memory.h).
#pragma once

#include <memory>

#include "base/config.h"
#include "transport/shm/layout.h"
#include "transport/shm/pair_link_memory.h"
#include "transport/transport.h"

namespace tutti::internal::transport::shm {

// From this size on, a source that the peer can read in place is sent by zero copy: below it, the copy through a slot
// in the cache costs less than the cache misses of the second reader.
inline constexpr std::size_t kZcopyBytes = 16 * 1024;
// A zero-copy message is at most this long, so that the peer starts early and the sender's bytes are released in order.
inline constexpr std::size_t kMostZcopyBytes = 256 * 1024;

// From this size on, the peer's process itself reads data sent from other memory, if it can (CrossMemory), in
// operations that gain by it. Two ranks on their own processors, which exchange: all-gather 0.8 of the time through
// slots at 128 KiB, 0.7 at 256 KiB and 1 MiB, 0.85 at 4 and 16 MiB.
inline constexpr std::size_t kCrossMemoryBytes = 48 * 1024;
// For far processors and oversubscribed ranks: scatter of 32 KiB blocks by four ranks on two processors 0.65 of the
// time.
inline constexpr std::size_t kFarCrossMemoryBytes = 32 * 1024;

struct LinkOptions {
  int peer = -1;  // for errors
  // Ranks of this machine do not share processors: see demote_line(). Both sides must pass the same value, because it
  // determines the layout of the link's memory (turns_of()).
  bool own_processor = true;
  // How many slots this side fills with long messages before the peer consumes: from 2 to all.
  std::uint32_t slots_ahead = kSlots;
  // Whether to read the peer's memory, if that is another process: kAuto: in operations that gain by it, kAlways: in
  // every operation that permits it (MemoryUse).
  MemoryReads reads = MemoryReads::kAuto;
  bool far = false;  // whether the peer's processor is far, until it is measured (distance.h); tests set it
};
inline Turns turns_of(const LinkOptions& options) {
  return options.own_processor ? Turns::kNone : Turns::kTaken;
}

// Between processes. `same_process`: the peer is another thread of this process. REQUIRES: memory->connect() has
// returned true.
std::unique_ptr<Link> make_link(std::unique_ptr<PairLinkMemory> memory, bool same_process, const LinkOptions& options);

// Between threads of one process: both make a link of the same private segment. The peer's wakeup fd outlives it.
std::unique_ptr<Link> make_private_link(std::unique_ptr<LinkMemory> memory, int peer_wakeup_fd,
                                        const LinkOptions& options);

}  // namespace tutti::internal::transport::shm
