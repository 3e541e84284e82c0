// The data that two ranks write into each other's memory, and how a queue pair announces it.
//
// A lane is a ring of kSlots slots in the receiver's memory, its inbox. Message i goes to slot i modulo kSlots: a
// header and, right behind it, the payload. If the receiver has advertised a buffer for it, the payload goes there and
// only the header to the slot. A slot is free again when the receiver announces, with its own messages, how many
// messages it has consumed.
//
// Announcement. InfiniBand and RoCE: the write carries 32 bits of immediate data, which appear in the receiver's
// completion queue when the bytes are in its memory. iWARP has no such write: a send of these 32 bits follows on the
// same queue pair, which completes after the bytes before it are placed (RFC 5040, 5.5). With several queue pairs
// messages may overtake each other; their numbers restore the order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/transport.h"
#include "transport/verbs/ports/ports.h"

namespace tutti::internal::transport::verbs {

inline constexpr std::uint32_t kSlots = 16;
inline constexpr std::size_t kSlotBytes = 32 * 1024;
// Limit of advertisements of one receiver that are not yet passed.
inline constexpr std::uint32_t kAdvertisements = 16;
// Lines for them. A sender that does not read advertisements sends at most kSlots messages, which pass at most kSlots
// advertisements; so that many more may arrive before it has read the first.
inline constexpr std::uint32_t kAdvertisementLines = kAdvertisements + kSlots;

struct MessageHeader {
  std::uint32_t length = 0;      // of the payload
  std::uint32_t direct_put = 0;  // 1: the payload is in the buffer that the receiver has advertised
  std::uint32_t number = 0;      // of this message, from 0, modulo 2^32
  Fingerprint fingerprint;
};
static_assert(sizeof(MessageHeader) == 32);

struct alignas(64) Slot {
  MessageHeader header;
  std::byte payload[kSlotBytes];
};

// The receiver's buffer for bytes [position, position + bytes) of the sender's stream.
struct alignas(64) AdvertisementLine {
  std::uint64_t position = 0;
  std::uint64_t bytes = 0;
  std::uint64_t address = 0;
  std::uint32_t rkeys[kMaxRails] = {};  // by rail
  std::uint32_t reserved[2] = {};
};
static_assert(sizeof(AdvertisementLine) == 64);

// Queue pairs of one link, over all rails.
inline constexpr std::size_t kMaxPairs = 64;

// Every announcement takes one posted receive. The slower side has at most these unread: kSlots messages,
// kAdvertisementLines advertisements, three credits. The rest is for receives that are posted again in batches.
inline constexpr std::uint32_t kReceives = 64;
inline constexpr std::uint32_t kReceiveBatch = 8;
static_assert(kReceives >= kSlots + kAdvertisementLines + 3 + kReceiveBatch);

// Written by the peer.
struct Inbox {
  Slot slots[kSlots];
  AdvertisementLine advertisements[kAdvertisementLines];
  std::uint32_t announcements[kMaxPairs][kReceives];  // iWARP: received by send, by queue pair
};
// The sender's image of the peer's inbox. Registered, for data that does not fit into a work request.
struct Outbox {
  Slot slots[kSlots];
  AdvertisementLine advertisements[kAdvertisementLines];
  std::uint32_t announcements[kMaxPairs][kReceives];
};

enum class ImmediateKind : std::uint32_t { kMessage = 0, kAdvertisement = 1, kCredit = 2 };

// The 32 bits: kind (2), messages of the other direction consumed so far modulo 2^14 (14), number modulo 2^16 (16).
inline constexpr std::uint32_t kConsumedMask = 0x3fff;
inline constexpr std::uint32_t kNumberMask = 0xffff;
constexpr std::uint32_t encode(ImmediateKind kind, std::uint32_t consumed, std::uint32_t number) {
  return static_cast<std::uint32_t>(kind) << 30 | (consumed & kConsumedMask) << 16 | (number & kNumberMask);
}
constexpr ImmediateKind immediate_kind(std::uint32_t word) {
  return static_cast<ImmediateKind>(word >> 30);
}
constexpr std::uint32_t consumed_of(std::uint32_t word) {
  return word >> 16 & kConsumedMask;
}
constexpr std::uint32_t number_of(std::uint32_t word) {
  return word & kNumberMask;
}

}  // namespace tutti::internal::transport::verbs
