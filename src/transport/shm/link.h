// A link through shared memory: see segment.h for the memory, wakeup_fd.h for sleeping.
//
// Zero copy: a large push() whose source the peer can read in place (any memory between
// threads of one process, tuttiMemAlloc memory between processes) sends only where it is. The peer
// reads it there, and completed() passes it when the peer has consumed it. In operations that exchange blocks the same
// holds of other memory between processes, which the peer reads by a system call (cross_memory.h).
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/failure.h"
#include "base/unique_fd.h"
#include "transport/shm/segment.h"
#include "transport/transport.h"
#include "transport/wakeup_fd.h"

namespace tutti::internal::transport::shm {

// From this size on, a source that the peer can read in place is sent by zero copy: below, the
// copy through a slot in the cache costs less than the second reader's misses.
inline constexpr std::size_t kZcopyBytes = 16 * 1024;
// A zero-copy message is at most this long, so that the peer starts early and the sender's bytes come free in order.
inline constexpr std::size_t kMostZcopyBytes = 256 * 1024;

// From this size on, what is sent from other memory is read by the peer's process itself, if it can (CrossMemory), in
// operations in which each rank sends and receives at once: both copy then, and each byte once. Two ranks on processors
// of their own, all-gather: 0.8 of the time through slots at 128 KiB, 0.7 at 256 KiB and 1 MiB, 0.85 at 4 and 16 MiB.
// A broadcast takes up to 1.3 times as long, since its root then copies nothing.
inline constexpr std::size_t kCrossMemoryBytes = 48 * 1024;

// What both constructors need. The wakeup fd outlives the link.
struct LinkOptions {
  int peer = -1;  // for messages
  // Ranks of this machine do not share processors: see demote_line(). Both sides must say the same in make_link():
  // the segment that it makes follows (turns_of()). make_shared_link() and make_private_link() go by their segment.
  bool own_processor = true;
  const WakeupFd* wakeup_fd = nullptr;    // this rank's
  const FailureState* failure = nullptr;  // ends make_link() at once; null: only the deadline does
  // How many slots this side fills with long messages before the peer consumes: from 2 to all.
  std::uint32_t slots_ahead = kSlots;
  bool reads = true;  // the peer's memory, if that is another process with a processor of its own
  bool far = false;   // the peer's processor, until it is measured (distance.h); tests say so
};
inline Turns turns_of(const LinkOptions& options) {
  return options.own_processor ? Turns::kNone : Turns::kTaken;
}

// Between processes: exchanges the segment and the wakeup fds over `socket`, an authenticated, connected,
// non-blocking Unix socket. The two sides differ in `dialled`. The socket stays in use for announcing
// regions. `same_process`: the peer is another thread of this process. kRemoteError on both sides if they differ in
// what must be the same.
Result<std::unique_ptr<Link>> make_link(UniqueFd socket, bool dialled, bool same_process, const LinkOptions& options,
                                        Deadline deadline);

// What make_link() makes once segment and wakeup fd have been exchanged. Side 0 dialled.
std::unique_ptr<Link> make_shared_link(std::shared_ptr<Segment> segment, int side, UniqueFd peer_wakeup_fd,
                                       UniqueFd socket, bool same_process, const LinkOptions& options);

// Between threads of one process: both make a link from the same private segment, side 0 and side 1.
std::unique_ptr<Link> make_private_link(std::shared_ptr<Segment> segment, int side, int peer_wakeup_fd,
                                        const LinkOptions& options);

}  // namespace tutti::internal::transport::shm
