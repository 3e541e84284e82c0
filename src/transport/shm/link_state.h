// The state that the two lanes of a shm link share.
//
// Threads: as the link (transport.h). Words that the peer uses at the same time are in SideMemory.
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "os/clock.h"
#include "transport/end_watch.h"
#include "transport/shm/layout.h"
#include "transport/shm/link_regions.h"
#include "transport/shm/pair.h"
#include "transport/transport.h"
#include "transport/wakeup_fd.h"

namespace tutti::internal::transport::shm {

inline LaneTraits shm_traits() {
  LaneTraits t;
  t.transport = "shm";
  t.slots = true;
  t.piece_bytes = kSlotBytes;
  return t;
}

// What a side may be doing with its peer's memory: bits.
enum class Access : std::uint32_t { kReading = 1, kWriting = 2 };

// For both lanes, which begin in the eager slots with message `first`, counted from 0.
inline Lines eager_lines(const LinkMemory& memory, int peer_wakeup_fd, std::uint32_t first = 0) {
  SideMemory& own = memory.own();
  const SideMemory& theirs = memory.theirs();
  Lines l;
  l.out = {own.eager, kEagerSlots, 0};
  l.in = {const_cast<HeaderLine*>(theirs.eager), kEagerSlots, 0};
  l.next_out = &l.out[first];
  l.next_in = &l.in[first];
  l.ahead = kEagerAhead;
  l.published = l.acknowledged = l.received = first;
  l.consumed = &own.consumed.value;
  l.peer_sleeping = &theirs.sleeping.value;
  l.peer_wakeup_fd = peer_wakeup_fd;
  l.own_processors = memory.turns() == Turns::kNone;
  return l;
}

struct LinkState {
  LinkMemory* memory = nullptr;
  SideMemory* own = nullptr;           // of the memory
  const SideMemory* theirs = nullptr;  // the same
  Lines lines;                         // the state of both lanes that messages in lines need: eager_lines()
  Extension extension;                 // this side's, once it is needed
  int peer = -1;
  bool same_process = false;
  bool far = false;                    // see LinkOptions
  std::uint32_t slots_ahead = kSlots;  // see LinkOptions
  Pair* pair = nullptr;                // null between threads
  LinkRegions regions;                 // of the pair: for reading the peer's memory
  LinkRegions put_regions;             // of the pair: for writing it, which may happen at the same time
  std::uint32_t consumed_seen = 0;     // consumed messages of the peer, as last read from its counter
  std::uint32_t accesses = 0;          // the open ones, as bits of Access
  bool lost = false;                   // the peer has revoked its memory, or this side its own: no more reads
  std::int64_t lost_ns = 0;            // when `lost` was set; 0: not yet
  std::int64_t closed_ns = 0;          // when the peer was first seen to have ended the link; 0: not yet
  EndWatch peer_end{-1};               // of the peer's process
  Status status;
  CrossMemory* cross_memory = nullptr;  // null: neither side reads the other's memory
  bool always_reads = false;            // see LinkOptions

  // The access protocol. Memory of the peer is touched only while an access is open. The peer revokes it by setting
  // `revoked`, and has it back when it sees that no access is open. Sequentially consistent: either this side sees the
  // revocation, or the peer sees the access. An access lasts from peek() or reserve_remote() to consume() or commit(),
  // also while its lane waits for a slot in between, and at most until arm(). The end of an access leaves the other
  // lane's open: its view or reservation may be in use, even in the same step.
  //
  // False if the peer has revoked its memory. Called again for an open access: whether it may continue.
  [[nodiscard]] bool begin_access(Access kind) {
    if (!lost) [[likely]] {
      if (accesses == 0) own->in_access.value.store(1, std::memory_order_seq_cst);
      accesses |= static_cast<std::uint32_t>(kind);
      if (theirs->end.revoked.load(std::memory_order_seq_cst) == 0) [[likely]]
        return true;
      lose();
    }
    close_access(kind);
    return false;
  }
  // False if the peer revoked its memory before the access was complete: the bytes read are undefined.
  [[nodiscard]] bool end_access(Access kind) {
    debug_check(is_open(kind), "memory of the peer was touched outside an access");
    // All reads of the access come before this check.
    std::atomic_thread_fence(std::memory_order_acquire);
    const bool kept = theirs->end.revoked.load(std::memory_order_relaxed) == 0;
    if (!kept) [[unlikely]]
      lose();
    close_access(kind);
    return kept;
  }
  // Open views and reservations end unused.
  void end_accesses() {
    close_access(Access::kReading);
    close_access(Access::kWriting);
  }
  void close_access(Access kind) {
    if (!is_open(kind)) return;
    accesses &= ~static_cast<std::uint32_t>(kind);
    if (accesses == 0) own->in_access.value.store(0, std::memory_order_release);
  }
  [[nodiscard]] bool is_open(Access kind) const { return (accesses & static_cast<std::uint32_t>(kind)) != 0; }
  // Permanent: no access begins any more.
  void lose() {
    lost = true;
    if (lost_ns == 0) lost_ns = now_ns();
  }
  // For a rank that waits for the peer.
  [[nodiscard]] Status current_status() {
    if (!status.is_ok()) return status;
    const std::int64_t now = now_ns();
    if (theirs->end.revoked.load(std::memory_order_relaxed) != 0) lose();
    if (lost_ns != 0 && now - lost_ns > kEndedGraceNs) {
      status = Status::remote(fmt::format("rank {} has failed in this operation", peer));
    } else if (has_closed(now) || peer_end.ended(now)) {
      status = Status::remote(fmt::format("rank {} has closed its connection", peer));
    }
    return status;
  }

  // Like EndWatch: the peer closed its side at least the grace period ago.
  [[nodiscard]] bool has_closed(std::int64_t now) {
    if (closed_ns == 0 && theirs->end.closed.load(std::memory_order_relaxed) != 0) closed_ns = now;
    return closed_ns != 0 && now - closed_ns > kEndedGraceNs;
  }

  // Makes this side's extension. False, and the link fails, if memory is missing.
  [[nodiscard]] bool extend() {
    if (extension) return true;
    auto made = memory->extend();
    if (made.is_ok()) {
      extension = *made;
    } else {
      fail(made.status());
    }
    return made.is_ok();
  }

  // The first error is kept.
  void fail(const Status& cause) {
    if (status.is_ok()) status = cause.with_context(fmt::format("shared memory of rank {}", peer));
  }
  [[gnu::noinline]] void fail_protocol(const std::string& what) {
    fail(Status::remote(fmt::format("protocol error: {}", what)));
  }

  void see_acknowledged(std::uint32_t count) {
    if (!lines.see_acknowledged(count)) [[unlikely]]
      fail_acknowledged(count);
  }
  [[gnu::noinline]] void fail_acknowledged(std::uint32_t count) {
    fail_protocol(fmt::format("it says that it has consumed {} messages, more than the {} sent to it (before: {})",
                              count, lines.published, lines.acknowledged));
  }
  void read_acknowledged() { see_consumed(theirs->consumed.value.load(std::memory_order_acquire)); }
  void see_consumed(std::uint32_t count) {
    consumed_seen = count;
    see_acknowledged(count);
  }
};

}  // namespace tutti::internal::transport::shm
