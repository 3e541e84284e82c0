// The messages of the two sides of a pair over their Unix socket.
#pragma once

#include <cstdint>

#include "transport/shm/layout.h"

namespace tutti::internal::transport::shm {

enum class PairMessageKind : std::uint32_t {
  kWakeupFd = 0x74736d60,  // carries the descriptor
  kArena,                  // carries the arena's descriptor, and the sender's NUMA node
  kOpen,                   // a side of a link: its number, turns and position
  kClose,                  // a side of a link: the sender has ended its own, or has none
  kAnnounce,               // a region: carries its descriptor
  kForget,                 // the region is gone
};

struct PairMessage {
  PairMessageKind kind;
  Turns turns;           // kOpen
  std::uint64_t number;  // of a link or a region; kArena: of the node, from 1 on, 0 for none
  std::uint64_t place;   // position of the sender's side of the link in its arena; a region's size in bytes
};
static_assert(sizeof(PairMessage) == 24);

}  // namespace tutti::internal::transport::shm
