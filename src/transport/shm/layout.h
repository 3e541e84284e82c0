// The memory of one shm link, as both sides see it. Each side writes its own part and reads the other's: so no word has
// two writers.
//
// A lane is a ring of messages. A message is one header line, with its payload in it, if that has up to kLineBytes,
// or in a room of its own. At first a side has kFirstLines header lines and no rooms (SideMemory), which is all that
// many lanes ever need. When it has something longer to send, or is that far ahead of its receiver, it *extends* its
// side: it takes memory for a larger ring with rooms (ExtensionMemory), and sends a last message through the first
// ring, Payload::kExtended, which says that the next ones come there. So the receiver need not look for that.
//
// In an extension a lane has kSlots slots. A slot is one header line followed by its room.
//
// Where ranks take turns on processors, the header lines of a lane are a ring of their own, of kLinesAhead lines, and
// so are rooms for short payloads: so many short messages a sender may be ahead of its receiver, which would else need
// a turn for every round of slots. All messages go through the one ring of lines, which keeps them in order; message m
// (from 0) has line m % kLinesAhead, and the short room of that number. A longer one waits until fewer than
// kSlotsInTurns messages are under way, and so has slot m % kSlotsInTurns for itself.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "transport/transport.h"

namespace tutti::internal::transport::shm {

inline constexpr std::size_t kCacheLine = 64;
// A sender writes a slot sooner if the receiver has lost it from its level-2 cache since it read it, so a lane is
// larger than half of a common one. Two ranks with 512 KiB each, against 8 slots: sends and receives of 16 KiB 0.75 of
// the time, ping-pong of 1 MiB 0.85, all-reduce of 16 and 128 KiB 0.8 and 0.9, scan of these 0.7 and 0.8, broadcast of
// 128 KiB 0.9; up to 1 KiB the same within 5 %, from 16 MiB on the same. 16 slots have a third of that; 64, for which
// the memory grows, no more.
inline constexpr std::uint32_t kSlots = 32;
// Ranks that take turns share caches, in which fewer slots stay. Four and eight ranks on two processors with 512 KiB
// each take up to 2.4 times as long with 32, between 128 KiB and 1 MiB.
inline constexpr std::uint32_t kSlotsInTurns = 8;
inline constexpr std::uint32_t kLinesAhead = 64;
inline constexpr std::size_t kSlotBytes = 32 * 1024;
// From this size on a message is long: a sender that must not run far ahead then fills few slots.
inline constexpr std::size_t kLongBytes = 16 * 1024;
// Where a slot's payload is.
enum class Payload : std::uint32_t {
  kInline = 0,     // in the header line
  kSlot = 1,       // in the message's slot
  kZcopy = 2,      // in the sender's own memory: the header line holds a ZcopyDescriptor
  kDirectPut = 3,  // in the buffer that the receiver has advertised
  // In the sender's own memory, to be read by process_vm_readv(2): the header line holds a ZcopyDescriptor without
  // region.
  kCrossMemory = 4,
  kShort = 5,     // in the message's short room
  kExtended = 6,  // none: the messages behind this one go through the sender's extension
};
static_assert(static_cast<std::uint32_t>(Payload::kInline) == 0, "Lines sends and takes a length alone");
static_assert(static_cast<std::uint32_t>(Payload::kExtended) < 1U << (32 - kLengthBits));

// Names memory: of the sender, which the receiver may read; or of the receiver, which it has advertised and the sender
// may write. Within one address space `region` is 0 and `offset` an address.
struct ZcopyDescriptor {
  std::uint64_t region;
  std::uint64_t offset;
  std::uint64_t bytes;
};
static_assert(sizeof(ZcopyDescriptor) <= kLineBytes);

struct Slot {
  HeaderLine header;
  std::byte payload[kSlotBytes];
};
static_assert(sizeof(Slot) == kCacheLine + kSlotBytes && kShortMessageBytes <= kSlotBytes);

struct alignas(kCacheLine) Line {
  std::atomic<std::uint32_t> value;
  std::byte pad[kCacheLine - sizeof(std::uint32_t)];
};

// An advertisement: where the receiver wants bytes [position, position + bytes) of the sender's stream. A seqlock: the
// receiver uses a line again once the stream has passed it, and a sender that has not looked may be reading it then.
//  - The receiver, its one writer, stores 0 to `sequence`, passes a release fence, stores the other words, and then
//    stores the number (release).
//  - The sender loads `sequence` (acquire) and the other words, passes an acquire fence, and loads `sequence` again.
//    Only if that is as before, what it has read is of one advertisement; else it makes no use of it.
// So all words are atomic. Numbers of one line differ by multiples of kAdvertisements, so an equal one is the same one.
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

// By which a process is known, so that the other side can find out whether it can read its memory: what word lies at
// which of its addresses. Written once, before `named`.
struct alignas(kCacheLine) IdentityLine {
  std::atomic<std::uint32_t> named;
  std::uint32_t reserved;
  std::uint64_t address;
  std::uint64_t word;
};
static_assert(sizeof(IdentityLine) == kCacheLine);

// What one side writes that two processes have in common, at the beginning of its arena.
struct alignas(2 * kCacheLine) PairMemory {
  Line sent;              // messages over the socket
  Line reads;             // this side can read memory of the other's process: once
  IdentityLine identity;  // of this side's process: once
};

// What one side of a link writes, and the other reads at any time; its messages it reads between `sequence` and
// `consumed`. Zero-filled memory is the initial state.
inline constexpr std::uint32_t kFirstLines = 8;
// The last one is kept for the message that says that the next ones are in the extension.
inline constexpr std::uint32_t kFirstLinesAhead = kFirstLines - 1;
struct alignas(2 * kCacheLine) SideMemory {
  // Rarely written.
  Line sleeping;  // a thread sleeps, or is about to: ring this side's wakeup fd
  struct alignas(kCacheLine) End {
    std::atomic<std::uint32_t> revoked;    // this side has revoked its zero-copy sends and advertisements: once
    std::atomic<std::uint32_t> closed;     // it has ended the link: once
    std::atomic<std::uint64_t> extension;  // where it is (LinkMemory); 0: there is none. Written once
  } end;
  // Often.
  Line consumed;   // messages of the lane that this side receives which it is done with
  Line in_access;  // this side is inside an access, that is, may touch memory of the other
  HeaderLine lines[kFirstLines];
};
static_assert(sizeof(SideMemory) == 768);

// Behind the advertisements of a side, in its extension, what it sends.
struct AheadMemory {
  HeaderLine headers[kLinesAhead];
  std::byte shorts[kLinesAhead][kShortMessageBytes];
  std::byte slots[kSlotsInTurns][kSlotBytes];
};
struct ExtensionMemory {
  AdvertisementLine advertisements[kAdvertisements];
  union {
    Slot slots[kSlots];
    AheadMemory ahead;  // where ranks take turns
  };
};
static_assert(std::has_single_bit(kFirstLines) && std::has_single_bit(kLinesAhead) && std::has_single_bit(kSlots) &&
                  std::has_single_bit(kSlotsInTurns) && kSlotsInTurns <= kSlots,
              "the numbers of messages, of which lines and slots follow, pass 2^32");

// Whether ranks take turns on processors: both sides of a link must say the same.
enum class Turns : std::uint32_t { kNone = 0, kTaken = 1 };

// Where in their pages a side's extensions lie. Both sides are at about the same message, and processors compare the
// last 12 bits of addresses first: a load of the peer's line waits for what was just stored to the own, if that is at
// the same place of its page. So one side of a link says kFirst, the other kSecond. All-reduce of 8 bytes between two
// ranks takes 0.9 of the time. (The first lines lie apart by Arena::spread.)
enum class Placing : std::uint8_t { kFirst, kSecond };
// By how much the second side's are further on in pages of their own. With 1024, payloads of as many bytes meet:
// all-reduce of 1 KiB takes 1.04 times as long.
inline constexpr std::size_t kPlacingBytes = 2048;
constexpr std::size_t shift_of(Placing placing) {
  return placing == Placing::kFirst ? 0 : kPlacingBytes;
}

// Which payloads lie there; kInline where there are no rooms.
constexpr Payload payload_of(const ShortRooms& rooms) {
  return static_cast<Payload>(rooms.length_bits >> kLengthBits);
}

// The rings of an extension, which starts at `base`.
class Extension {
 public:
  Extension() = default;
  Extension(const std::byte* base, Turns turns)
      : memory_(reinterpret_cast<ExtensionMemory*>(const_cast<std::byte*>(base))), turns_(turns) {}
  static constexpr std::size_t bytes(Turns turns) {
    return offsetof(ExtensionMemory, slots) +
           (turns == Turns::kNone ? sizeof(ExtensionMemory::slots) : sizeof(ExtensionMemory::ahead));
  }
  // Pages that have room for it wherever it is placed.
  static constexpr std::size_t placed_bytes(Turns turns) {
    return (kPlacingBytes + bytes(turns) + kPageBytes - 1) / kPageBytes * kPageBytes;
  }

  [[nodiscard]] explicit operator bool() const { return memory_ != nullptr; }
  [[nodiscard]] AdvertisementLine* advertisements() const { return memory_->advertisements; }
  [[nodiscard]] HeaderRing headers() const {
    if (turns_ == Turns::kNone) return {&memory_->slots[0].header, kSlots, sizeof(Slot)};
    return {memory_->ahead.headers, kLinesAhead, sizeof(HeaderLine)};
  }
  // Rooms of kSlotBytes each.
  [[nodiscard]] PayloadRing slots() const {
    if (turns_ == Turns::kNone) return {memory_->slots[0].payload, kSlots, sizeof(Slot)};
    return {memory_->ahead.slots[0], kSlotsInTurns, kSlotBytes};
  }
  // Where the payloads of short messages lie: where no rank takes turns, in their slots.
  [[nodiscard]] ShortRooms short_rooms() const {
    if (turns_ == Turns::kNone) return rooms_of(Payload::kSlot, slots());
    return rooms_of(Payload::kShort, {memory_->ahead.shorts[0], kLinesAhead, kShortMessageBytes});
  }

 private:
  static constexpr std::size_t kPageBytes = 4096;
  static ShortRooms rooms_of(Payload payload, const PayloadRing& ring) {
    return {ring, kShortMessageBytes, static_cast<std::uint32_t>(payload) << kLengthBits};
  }
  ExtensionMemory* memory_ = nullptr;
  Turns turns_ = Turns::kNone;
};

// The memory of one link, from one of its sides. Threads: as the link.
class LinkMemory {
 public:
  LinkMemory() = default;
  LinkMemory(const LinkMemory&) = delete;
  LinkMemory& operator=(const LinkMemory&) = delete;
  virtual ~LinkMemory() = default;  // this side ends; the other goes on reading it as it likes

  [[nodiscard]] virtual SideMemory& own() const = 0;
  [[nodiscard]] virtual const SideMemory& theirs() const = 0;
  [[nodiscard]] Turns turns() const { return turns_; }
  // This side's extension; made with the first call.
  [[nodiscard]] virtual Result<Extension> extend() = 0;
  // The peer's. kRemoteError if it has none, or says something impossible of it.
  [[nodiscard]] virtual Result<Extension> peers_extension() = 0;

 protected:
  explicit LinkMemory(Turns turns) : turns_(turns) {}

 private:
  const Turns turns_ = Turns::kNone;
};

}  // namespace tutti::internal::transport::shm
