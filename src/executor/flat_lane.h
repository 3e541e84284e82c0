// A lane that a sender and a receiver share as plain memory, such as a device can take part in.
//
//   sent       one line    how many messages the sender has published                  written by the sender
//   taken      one line    how many of them the receiver does not need any more        written by the receiver
//   headers    a line for each slot: bytes, fingerprint                                written by the sender
//   slots      payloads, of slot_bytes each                                            written by the sender
//
// Message m (0, 1, ...) lies in slot m modulo the number of slots, which is a power of two. The sender writes payload
// and header, then publishes `sent` = m + 1; it writes slot m again only when `taken` is above m. Counters never wrap.
// A line is two cache lines, since processors fetch pairs; none has two writers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace tutti::internal::executor {

inline constexpr std::size_t kFlatLineBytes = 128;

// Read and written only through a memory model (strand.h), which knows how.
struct alignas(kFlatLineBytes) FlatCounter {
  std::uint64_t value = 0;
};

struct alignas(kFlatLineBytes) FlatHeader {
  std::uint32_t bytes = 0;
  transport::Fingerprint fingerprint;
};

// One side's view of a lane. It outlives the operations, which go on where the last one was.
struct FlatLaneEnd {
  FlatCounter* sent = nullptr;
  FlatCounter* taken = nullptr;
  FlatHeader* headers = nullptr;
  std::byte* slots = nullptr;
  std::uint32_t slot_bytes = 0;  // a multiple of the longest element
  std::uint32_t slot_count = 0;  // a power of two, at least two
  std::uint64_t messages = 0;    // that this side has sent, or taken
};

}  // namespace tutti::internal::executor
