// The memory of one shm link, as both sides see it, and how it is made: a memfd that travels over a
// Unix socket, so no limit of /dev/shm applies and nothing is left behind by a crash. Between threads
// of one process it is plain anonymous memory.
//
// A lane is a ring of kSlots slots. A slot is one header line followed by its payload. Payloads of up
// to kInlineBytes travel in the header line itself, so that a small message is one cache line.
//
// Where ranks take turns on processors, the header lines of a lane are a ring of their own, of kLinesAhead lines, and
// so are rooms for short payloads: so many short messages a sender may be ahead of its receiver, which would else need
// a turn for every round of slots. All messages go through the one ring of lines, which keeps them in order; message m
// (from 0) has line m % kLinesAhead, and the short room of that number. A longer one waits until fewer than
// kSlotsInTurns messages are under way, and so has slot m % kSlotsInTurns for itself. The other slots, and the header
// lines in all of them, are then not used.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/unique_fd.h"
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
inline constexpr std::size_t kInlineBytes = 32;
// A payload that has a short room, where ranks take turns. Four and eight ranks, 1 KiB: scatter, broadcast and
// reduce take 0.3 to 0.5 of the time that they take with slots alone.
inline constexpr std::size_t kShortBytes = 1024;

// Where a slot's payload is.
enum class Payload : std::uint32_t {
  kInline = 0,     // in the header line
  kSlot = 1,       // in the message's slot
  kZcopy = 2,      // in the sender's own memory: the header line holds a ZcopyDescriptor
  kDirectPut = 3,  // in the buffer that the receiver has advertised
  // In the sender's own memory, to be read by process_vm_readv(2): the header line holds a ZcopyDescriptor without
  // region.
  kCrossMemory = 4,
  kShort = 5,  // in the message's short room
};

// Names memory: of the sender, which the receiver may read; or of the receiver, which it has advertised and the sender
// may write. Within one address space `region` is 0 and `offset` an address.
struct ZcopyDescriptor {
  std::uint64_t region;
  std::uint64_t offset;
  std::uint64_t bytes;
};
static_assert(sizeof(ZcopyDescriptor) <= kInlineBytes);

// Whatever the other side writes here is checked before it is used: it must not make this side read or write
// outside its own and the memory that was sent by zero copy or advertised, nor loop for ever.
struct alignas(kCacheLine) SlotHeader {
  // Number of this message in its lane, from 1, modulo 2^32: written last (release), polled by the
  // receiver (acquire).
  std::atomic<std::uint32_t> sequence;
  std::uint32_t length_and_payload;  // length in the low 29 bits, Payload above; never 0 bytes
  // How many messages of the opposite lane this side has consumed: saves the peer a miss on `consumed`.
  std::uint32_t acknowledged;
  Fingerprint fingerprint;
  std::byte inline_bytes[kInlineBytes];
};
static_assert(sizeof(SlotHeader) == kCacheLine);

struct Slot {
  SlotHeader header;
  std::byte payload[kSlotBytes];
};
static_assert(sizeof(Slot) == kCacheLine + kSlotBytes);

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

// Side 0 dialled (or has the higher rank), side 1 accepted. Zero-filled memory is the initial state. Each word has one
// writer; the other side reads it at any time, but for messages, which it reads between `sequence` and `consumed`.
struct SegmentMemory {
  Line sleeping[2];   // side s sleeps, or is about to: ring its wakeup fd. Written by side s, rarely.
  Line in_epoch[2];   // side s is inside an epoch, that is, may touch memory of the other. Written by side s.
  Line revoked[2];    // side s has revoked its zero-copy sends and advertisements. Written by side s, once.
  Line announced[2];  // messages about regions that side s has written to the socket. Written by side s.
  Line consumed[2];   // messages of the lane that side s receives which it is done with. Written by side s.
  AdvertisementLine advertisements[2][kAdvertisements];  // [s]: of memory of side s. Written by side s.
  Slot lane[2][kSlots];                                  // lane[s] carries what side s sends
  Line reads[2];             // side s can read memory of the other's process. Written by side s, once.
  IdentityLine identity[2];  // [s]: of side s's process. Written by side s, once.
};
// Behind SegmentMemory where ranks take turns; pages of their own for each lane. As SegmentMemory::lane.
struct alignas(4096) AheadRooms {
  SlotHeader headers[2][kLinesAhead];
  std::byte shorts[2][kLinesAhead][kShortBytes];
};
static_assert(std::has_single_bit(kLinesAhead) && std::has_single_bit(kSlots) && std::has_single_bit(kSlotsInTurns) &&
                  kSlotsInTurns <= kSlots,
              "the numbers of messages, of which lines and slots follow, pass 2^32");

// Whether ranks take turns on processors: both sides of a link must say the same.
enum class Turns : std::uint32_t { kNone = 0, kTaken = 1 };

// What each message of a lane has one of: header lines, rooms for payloads. They lie `stride` bytes apart.
template <typename T>
class Ring {
 public:
  // `rooms` is a power of two, so that the numbers of messages may pass 2^32.
  Ring(T* first, std::uint32_t rooms, std::size_t stride)
      : first_(reinterpret_cast<std::byte*>(first)), stride_(stride), mask_(rooms - 1) {}
  // Of message `number`, from 0, modulo 2^32.
  [[nodiscard]] T& operator[](std::uint32_t number) const {
    return *reinterpret_cast<T*>(first_ + (number & mask_) * stride_);
  }
  [[nodiscard]] std::uint32_t rooms() const { return mask_ + 1; }

 private:
  std::byte* first_;
  std::size_t stride_;
  std::uint32_t mask_;
};
using HeaderRing = Ring<SlotHeader>;
using PayloadRing = Ring<std::byte>;

// Whether the memory behind `fd` is sealed against shrinking, which would kill a process that has it mapped (SIGBUS).
bool cannot_shrink(const UniqueFd& fd);

// A mapped segment; unmapped with the last owner.
class Segment {
 public:
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Anonymous memory for two threads of this process.
  static Result<std::shared_ptr<Segment>> create_private(Turns turns = Turns::kNone);
  // A memfd for two processes; *fd is to be passed to the peer.
  static Result<std::shared_ptr<Segment>> create_shared(UniqueFd* fd, Turns turns = Turns::kNone);
  // Maps what the peer has created. kRemoteError if it has the wrong size.
  static Result<std::shared_ptr<Segment>> map(const UniqueFd& fd, Turns turns = Turns::kNone);

  [[nodiscard]] SegmentMemory& memory() const { return *memory_; }
  [[nodiscard]] Turns turns() const { return turns_; }
  // Of the lane that carries what `side` sends.
  [[nodiscard]] HeaderRing headers(int side) const;
  [[nodiscard]] PayloadRing slots(int side) const;   // of kSlotBytes each
  [[nodiscard]] PayloadRing shorts(int side) const;  // of kShortBytes each, if short_bytes() is not 0
  // The longest payload that has a short room; 0: none has.
  [[nodiscard]] std::size_t short_bytes() const { return turns_ == Turns::kNone ? 0 : kShortBytes; }
  // Of the memory.
  static std::size_t bytes(Turns turns);

 private:
  Segment(SegmentMemory* memory, Turns turns) : memory_(memory), turns_(turns) {}
  [[nodiscard]] AheadRooms& ahead() const;
  static Result<std::shared_ptr<Segment>> map_bytes(int fd, int flags, Turns turns);
  SegmentMemory* const memory_;
  const Turns turns_;
};

}  // namespace tutti::internal::transport::shm
