// What the two lanes of a shm link share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "transport/doorbell.h"
#include "transport/shm/peer_regions.h"
#include "transport/shm/segment.h"
#include "transport/transport.h"

namespace tutti::transport::shm {

// SlotHeader::length_and_payload.
inline constexpr std::uint32_t kLengthBits = 30;
inline constexpr std::uint32_t kLengthMask = (1U << kLengthBits) - 1;

inline LaneTraits shm_traits() {
  LaneTraits t;
  t.transport = "shm";
  t.slots = true;
  t.piece_bytes = kSlotBytes;
  t.capacity_bytes = kSlots * kSlotBytes;
  t.latency_us = 0.2;
  t.bandwidth_gbs = 12;
  return t;
}

// How long an operation whose peer has taken its memory back waits for the communicator to say why.
inline constexpr std::int64_t kRevokedGraceNs = 2'000'000'000;

struct LinkState {
  std::shared_ptr<Segment> segment;
  SegmentMemory* memory = nullptr;
  int side = 0;
  int peer = -1;
  int peer_doorbell = -1;
  bool same_process = false;
  bool demotes = false;                // small payloads, to the shared cache
  std::uint32_t slots_ahead = kSlots;  // see LinkOptions
  PeerRegions* regions = nullptr;      // null between threads
  std::uint32_t acknowledged = 0;      // slots of our lane that the peer has consumed, as last seen
  std::uint32_t received = 0;          // slots of the peer's lane that we have consumed
  bool let_go = false;                 // of the peer's memory, which the peer has revoked
  std::int64_t let_go_ns = 0;          // when
  Status status;

  // Whether the peer has taken its memory back. Must be asked before each use of that memory; this rank
  // lets go of it with the answer.
  [[nodiscard]] bool peer_revoked() {
    if (memory->revoked[1 - side].value.load(std::memory_order_acquire) == 0) [[likely]]
      return false;
    if (!std::exchange(let_go, true)) let_go_ns = now_ns();
    memory->touching[side].value.store(0, std::memory_order_release);
    return true;
  }
  // Why the peer has failed is known better by the communicator, which hears of it: this is for the case
  // that it does not.
  [[nodiscard]] Status current_status() {
    if (status.is_ok() && let_go && now_ns() - let_go_ns > kRevokedGraceNs) {
      status = Status::remote("rank " + std::to_string(peer) + " has failed in this operation");
    }
    return status;
  }

  void wake_peer() const {
    // See doorbell.h: the sleeper's fence stands in for one between our store and this load.
    light_fence();
    if (memory->sleeping[1 - side].value.load(std::memory_order_relaxed) != 0) [[unlikely]]
      ring(peer_doorbell);
  }
  void see_acknowledged(std::uint32_t count) {
    if (static_cast<std::int32_t>(count - acknowledged) > 0) acknowledged = count;
  }
  void read_acknowledged() { see_acknowledged(memory->consumed[1 - side].value.load(std::memory_order_acquire)); }
};

}  // namespace tutti::transport::shm
