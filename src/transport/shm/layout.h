// The memory of one shm link, as both sides see it. Each side writes its own part and reads the other's: so no word has
// two writers.
//
// A lane is a ring of slots (SlotRing). Message m, from 0, has slot m modulo their number: a header line, and behind it
// memory for a payload. A ring may also have long buffers, for payloads that are longer than a slot's. All rings have
// this layout, and differ only in their sizes (RingSizes):
//
//             slots   payload of a slot   long buffers
//   eager         8                   0              0   where a lane begins
//   extension    32              32 KiB              0   between ranks with their own processors
//                64               1 KiB    8 of 32 KiB   between oversubscribed ranks
//
// A sender *extends* its side when it has a payload for which the eager ring has no memory, or is that far ahead of its
// receiver: it takes memory for an extension, and sends a last message of 0 bytes through the eager ring, which says
// that the next ones use the extension. So the receiver need not check for that. Many lanes never need an extension.
//
// Invariants of a ring:
//  - A message is sent only if fewer messages are in flight than there are slots, and fewer than there are long
//    buffers, if it needs one. So no data that the receiver must still read is overwritten.
//  - All messages have slots, whatever their contents and wherever these are: so one number orders them.
//  - The position of a payload follows from the message's kind and length (Payload): both sides compute the same
//    address.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "transport/transport.h"

namespace tutti::internal::transport::shm {

inline constexpr std::size_t kCacheLine = 64;
// The most that one message carries through a ring.
inline constexpr std::size_t kSlotBytes = 32 * 1024;
// From this size on a message is long: a sender that must not run far ahead has only a few of these in flight.
inline constexpr std::size_t kLongBytes = 16 * 1024;

inline constexpr std::uint32_t kEagerSlots = 8;
// The last one is reserved for the message that says that the next ones are in the extension.
inline constexpr std::uint32_t kEagerAhead = kEagerSlots - 1;
// A sender writes a slot sooner if the receiver has evicted it from its level-2 cache since it read it, so a lane is
// larger than half of a common one. Two ranks with 512 KiB each, against 8 slots: sends and receives of 16 KiB 0.75 of
// the time, ping-pong of 1 MiB 0.85, all-reduce of 16 and 128 KiB 0.8 and 0.9, scan of these 0.7 and 0.8, broadcast of
// 128 KiB 0.9; up to 1 KiB the same within 5 %, from 16 MiB on the same. 16 slots give a third of that; 64, which need
// more memory, give no more.
inline constexpr std::uint32_t kSlots = 32;
// Oversubscribed ranks share caches, which hold fewer payloads. Four and eight ranks on two processors with 512 KiB
// each take up to 2.4 times as long with 32, between 128 KiB and 1 MiB.
inline constexpr std::uint32_t kLongBuffers = 8;
// But an oversubscribed sender should be many short messages ahead of its receiver, which would otherwise need a turn
// for every 8 of them: with four and eight ranks scatter, broadcast and reduce of 1 KiB take 0.3 to 0.5 of the time.
inline constexpr std::uint32_t kShortSlots = 64;

// Whether ranks are oversubscribed: both sides of a link must pass the same value.
enum class Turns : std::uint32_t { kNone = 0, kTaken = 1 };

// The differences between rings. All numbers are powers of two, or 0.
struct RingSizes {
  std::uint32_t slots;
  std::size_t payload_bytes;   // of a slot
  std::uint32_t long_buffers;  // of kSlotBytes each; 0: a message carries at most payload_bytes
};
constexpr RingSizes sizes_of(Turns turns) {
  return turns == Turns::kNone ? RingSizes{kSlots, kSlotBytes, 0}
                               : RingSizes{kShortSlots, kShortMessageBytes, kLongBuffers};
}
static_assert(std::has_single_bit(kEagerSlots) && std::has_single_bit(kSlots) && std::has_single_bit(kShortSlots) &&
                  std::has_single_bit(kLongBuffers),
              "the numbers of messages, of which slots and long buffers follow, pass 2^32");
static_assert(kLongBuffers <= kSlots && kLongBuffers <= kShortSlots && kShortMessageBytes <= kSlotBytes);

// Where the payload of a message is, and how often it is copied on its way from buffer to buffer:
//  - kInline, twice, in the line that the receiver polls: so a short message moves one line instead of two.
//  - kRing, twice: if neither side accesses the other's buffers.
//  - kLent, once, by the receiver, which may combine it on the way.
//  - kPut, once, by the sender, which may have combined it on the way.
enum class Payload : std::uint32_t {
  kInline = 0,  // in the header line: up to kLineBytes. 0 bytes: the following messages use the sender's extension
  kRing = 1,    // in the message's slot; in its long buffer, if it is longer than a slot's payload
  kLent = 2,    // in the sender's own memory: the header line contains a ZcopyDescriptor
  kPut = 3,     // in the buffer that the receiver has advertised
};
static_assert(static_cast<std::uint32_t>(Payload::kInline) == 0 &&
              static_cast<std::uint32_t>(Payload::kRing) << kLengthBits == kInRing);
static_assert(static_cast<std::uint32_t>(Payload::kPut) == UINT32_MAX >> kLengthBits, "each number is a kind");

// Names memory: of the sender, which the receiver may read; or of the receiver, which it has advertised and the sender
// may write. If `region` is 0, `offset` is an address in the process that names it: another process reads there by
// process_vm_readv(2) (CrossMemory), and does not write there.
struct ZcopyDescriptor {
  std::uint64_t region;
  std::uint64_t offset;
  std::uint64_t bytes;
};
static_assert(sizeof(ZcopyDescriptor) <= kLineBytes);

struct alignas(kCacheLine) Line {
  std::atomic<std::uint32_t> value;
  std::byte pad[kCacheLine - sizeof(std::uint32_t)];
};

// An advertisement: where the receiver wants bytes [position, position + bytes) of the sender's stream. It is a
// seqlock: the receiver reuses a line once the stream has passed it, and a sender that has not looked may be reading it
// then.
//  - The receiver, its only writer, stores 0 to `sequence`, executes a release fence, stores the other words, and then
//    stores the number (release).
//  - The sender loads `sequence` (acquire) and the other words, executes an acquire fence, and loads `sequence` again.
//    Only if both values are equal, the words belong to one advertisement; otherwise the sender does not use them.
// So all words are atomic. Numbers of one line differ by multiples of kAdvertisements, so an equal number means the
// same advertisement.
inline constexpr std::uint32_t kAdvertisements = 8;
struct alignas(kCacheLine) AdvertisementLine {
  // Number of this advertisement, from 1, modulo 2^32; 0 while it is being written.
  std::atomic<std::uint32_t> sequence;
  std::uint32_t reserved;
  std::atomic<std::uint64_t> position;
  std::atomic<std::uint64_t> region;  // as in ZcopyDescriptor
  std::atomic<std::uint64_t> offset;
  std::atomic<std::uint64_t> bytes;
};
static_assert(sizeof(AdvertisementLine) == kCacheLine);

// Identifies a process, so that the other side can test whether it can read its memory: a word and its address in the
// process. Written once, before `named`.
struct alignas(kCacheLine) IdentityLine {
  std::atomic<std::uint32_t> named;
  std::uint32_t reserved;
  std::uint64_t address;
  std::uint64_t word;
};
static_assert(sizeof(IdentityLine) == kCacheLine);

// The part of one side in the memory that two processes share for all of their links, at the beginning of its arena.
struct alignas(2 * kCacheLine) PairMemory {
  Line sent;              // messages over the socket
  Line reads;             // set once: this side can read memory of the other side's process
  IdentityLine identity;  // of this side's process: set once
};

// The part of a link that one side writes. The other side reads it at any time, and messages between `sequence` and
// `consumed`. Zero-filled memory is the initial state.
struct alignas(2 * kCacheLine) SideMemory {
  // Rarely written.
  Line sleeping;  // a thread sleeps, or is about to: ring this side's wakeup fd
  struct alignas(kCacheLine) End {
    std::atomic<std::uint32_t> revoked;    // set once: this side has revoked its zero-copy sends and advertisements
    std::atomic<std::uint32_t> closed;     // set once: it has ended the link
    std::atomic<std::uint64_t> extension;  // its position (LinkMemory); 0: there is none. Written once
  } end;
  // Often written.
  Line consumed;   // consumed messages of the lane that this side receives
  Line in_access;  // this side is inside an access, that is, may touch memory of the other side
  HeaderLine eager[kEagerSlots];
};
static_assert(sizeof(SideMemory) == 768);

// Where in their pages a side's extensions begin. Both sides are at about the same message, and processors first
// compare the last 12 bits of addresses: a load of the peer's line waits for a preceding store to the own line, if that
// is at the same position in its page. So one side of a link uses kFirst, the other kSecond. All-reduce of 8 bytes
// between two ranks takes 0.9 of the time. (Arena::spread separates the eager slots.)
enum class Placing : std::uint8_t { kFirst, kSecond };
// By how much the second side's begin later in their own pages. With 1024, payloads of 1 KiB collide: all-reduce of 1
// KiB takes 1.04 times as long.
inline constexpr std::size_t kPlacingBytes = 2048;
constexpr std::size_t shift_of(Placing placing) {
  return placing == Placing::kFirst ? 0 : kPlacingBytes;
}

// Message m, from 0, has buffer m modulo their number.
class LongBuffers {
 public:
  LongBuffers() = default;
  LongBuffers(std::byte* first, std::uint32_t buffers) : first_(first), buffers_(buffers) {}
  [[nodiscard]] std::byte* operator[](std::uint32_t number) const {
    return first_ + (number & (buffers_ - 1)) * kSlotBytes;
  }
  [[nodiscard]] explicit operator bool() const { return buffers_ != 0; }

 private:
  std::byte* first_ = nullptr;
  std::uint32_t buffers_ = 0;
};

// An extension, which starts at `base`: the side's advertisements, its slots, its long buffers.
class Extension {
 public:
  Extension() = default;
  Extension(const std::byte* base, Turns turns) : base_(const_cast<std::byte*>(base)), sizes_(sizes_of(turns)) {}
  static constexpr std::size_t bytes(Turns turns) {
    return kAdvertisementBytes + slots_bytes(sizes_of(turns)) + sizes_of(turns).long_buffers * kSlotBytes;
  }
  // Whole pages, enough for either Placing.
  static constexpr std::size_t placed_bytes(Turns turns) {
    return (kPlacingBytes + bytes(turns) + kPageBytes - 1) / kPageBytes * kPageBytes;
  }

  [[nodiscard]] explicit operator bool() const { return base_ != nullptr; }
  [[nodiscard]] AdvertisementLine* advertisements() const { return reinterpret_cast<AdvertisementLine*>(base_); }
  [[nodiscard]] SlotRing slots() const {
    return {reinterpret_cast<HeaderLine*>(base_ + kAdvertisementBytes), sizes_.slots, sizes_.payload_bytes};
  }
  [[nodiscard]] LongBuffers long_buffers() const {
    return {base_ + kAdvertisementBytes + slots_bytes(sizes_), sizes_.long_buffers};
  }

 private:
  static constexpr std::size_t kPageBytes = 4096;
  static constexpr std::size_t kAdvertisementBytes = kAdvertisements * sizeof(AdvertisementLine);
  static constexpr std::size_t slots_bytes(const RingSizes& sizes) {
    return sizes.slots * (sizeof(HeaderLine) + sizes.payload_bytes);
  }
  std::byte* base_ = nullptr;
  RingSizes sizes_{};
};

// The memory of one link, from one of its sides. Threads: as the link.
class LinkMemory {
 public:
  LinkMemory() = default;
  LinkMemory(const LinkMemory&) = delete;
  LinkMemory& operator=(const LinkMemory&) = delete;
  virtual ~LinkMemory() = default;  // ends this side; the other may continue to read it

  [[nodiscard]] virtual SideMemory& own() const = 0;
  [[nodiscard]] virtual const SideMemory& theirs() const = 0;
  [[nodiscard]] Turns turns() const { return turns_; }
  // This side's extension; made with the first call.
  [[nodiscard]] virtual Result<Extension> extend() = 0;
  // The peer's. kRemoteError if it has none, or has sent an impossible value.
  [[nodiscard]] virtual Result<Extension> peers_extension() = 0;

 protected:
  explicit LinkMemory(Turns turns) : turns_(turns) {}

 private:
  const Turns turns_ = Turns::kNone;
};

}  // namespace tutti::internal::transport::shm
