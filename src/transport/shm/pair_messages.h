// What the two sides of a pair tell each other over their Unix socket.
#pragma once

#include <cstdint>

#include "transport/shm/layout.h"

namespace tutti::internal::transport::shm {

enum class PairMessageKind : std::uint32_t {
  kWakeupFd = 0x74736d60,  // carries it
  kArena,                  // carries its descriptor, and the sender's NUMA node
  kOpen,                   // a side of a link: its number, turns and place
  kClose,                  // the same: the sender has ended its own, or has none
  kAnnounce,               // a region: carries its descriptor
  kForget,                 // it is gone
};

struct PairMessage {
  PairMessageKind kind;
  Turns turns;           // kOpen
  std::uint64_t number;  // of a link or a region; kArena: of the node, from 1 on, 0 for none
  std::uint64_t place;   // where the sender's side of the link is in its arena; a region's bytes
};
static_assert(sizeof(PairMessage) == 24);

}  // namespace tutti::internal::transport::shm
