// The connection of two ranks. A Link holds one lane to the peer and one from it. Each lane is a stream of bytes, in
// order; the transport cuts it into pieces of any size. The executor moves all data through these few verbs, over slots
// in shared memory, sockets, a NIC that writes slots, or mapped memory of the peer.
//
// Addresses. User memory comes as a Source, which is bound once per call. It names the tuttiMemAlloc region of the
// buffer, so that no piece needs a look-up.
//
// Threads. A link belongs to one communicator and is used by one thread at a time: the one that runs its operations, or
// finalizes it. The peer uses its end at the same time. Links of one communicator may share objects of this
// communicator (its RDMA context), so one thread uses all of them. Objects that links of several communicators share
// have their own synchronisation.
//
// All verbs are pure virtual, so that a decorator (the tests have one) cannot forget one; a transport inherits verbs
// that it does not have from plain.h. Lines are the exception: not a verb, but state that a lane exposes (lines_) if
// its messages are lines of memory, so that short messages cost no virtual call. A decorator must leave lines_ null, so
// that everything goes through its verbs.
//
// Failure. No verb blocks or crashes because of a peer. A failed lane takes no more than it had room for; status() has
// the reason, which the executor's wait policy reads. If there is no memory, a verb may throw std::bad_alloc: then the
// link is no longer usable, and the operation fails (CpuExecutor::run). revoke(), revoked() and destruction, which
// follow, never throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "base/types.h"
#include "memory/source.h"
#include "transport/fingerprint.h"
#include "transport/lines.h"

namespace tutti::internal::transport {

using memory::Source;

// The least that every lane takes even if the peer consumes nothing.
inline constexpr std::size_t kLeastRoomBytes = 64;
// Up to this many bytes that are pushed in one call are one message, even if several calls are needed until all of it
// is taken. In the end peek() shows all of it that the receiver has not consumed, or kLeastViewBytes if that is less.
// So an element is never cut permanently, nor one with the header of a decorator (checked/link.h) before it.
inline constexpr std::size_t kWholeMessageBytes = 32 * 1024;
inline constexpr std::size_t kLeastViewBytes = kMostElementBytes + 64;

// For the data that an operation sends: whether the peer should read it from this process's memory (one copy, which the
// peer makes) instead of getting it through slots (two copies).
enum class Reading : std::uint8_t {
  kNever,
  kFromAfar,  // if the peer's processor is far, so that data arrives slowly from its cache
  kAlways
};

// How an operation uses the memory of its call; for links, before it begins.
struct MemoryUse {
  // For ordinary memory that it sends to another process.
  Reading reading = Reading::kNever;
  // It only moves bytes: peers may want this rank to read their memory, whatever it sends.
  bool only_moves = false;
  // Whether such reading also pays between oversubscribed ranks, at any distance.
  bool read_in_turns = false;
  // It overwrites input that it has sent by zero copy, after the peer has read it.
  bool rewrites_input = false;
};

// Whether reading peers' memory (MemoryUse::read_in_turns) pays in a collective.
constexpr bool is_read_in_turns(Collective collective) {
  return !combines(collective) && is_among(kGettingOwnBlock | kPermuting, collective);
}

// What a lane can do, for the executor.
struct LaneTraits {
  const char* transport = "";         // "shm", "tcp", ...
  bool slots = false;                 // reserve()/commit() work
  bool pulls = false;                 // pull() may save a copy
  bool takes_advertisements = false;  // RecvLane::advertise() may save a copy
  bool puts_directly = false;         // push() and commit() also write to advertised buffers, not only reserve_remote()
  // Zero copy: from this size on, push() copies nothing, and the peer or the device reads the source in place (see
  // completed()). For sources in a region, and for any source. SIZE_MAX: never.
  std::size_t zcopy_bytes = SIZE_MAX;
  std::size_t zcopy_any_bytes = SIZE_MAX;  // of a receiving lane: from which size on it may read what the peer has left
  // Neither of the two is ever less, in any operation. Does not change.
  std::size_t least_zcopy_bytes = SIZE_MAX;
  // From this size on, write a reserved slot past the cache, and do not read it. May change with each message.
  std::size_t streamed_bytes = SIZE_MAX;
  std::size_t piece_bytes = 0;  // preferred piece; an empty lane usually takes a whole message of up to this size
};

class SendLane {
 public:
  virtual ~SendLane() = default;

  // Takes up to n bytes from source.base + offset, in order. Returns how many were taken, 0 if the lane is full now.
  // The transport may read taken bytes until completed() has passed them. If the peer does not empty the lane, only
  // kLeastRoomBytes are guaranteed, whatever the traits say: a caller that waits for room must continue to receive, or
  // it may wait without end. REQUIRES: if fewer than n were taken, the next call continues with the following bytes, of
  // the same operation.
  virtual std::size_t push(const Fingerprint& fingerprint, const Source& source, std::size_t offset, std::size_t n) = 0;

  // For writing into the slot directly: room for up to n bytes in the outgoing slot, empty if the lane is full now or
  // has no slots. Nothing is sent before commit(m), m <= the room's size; a second reserve() before that returns the
  // same room, or a longer one if that was shorter than both n and kLeastViewBytes: so it has that length after some
  // calls.
  virtual std::span<std::byte> reserve(std::size_t n) = 0;
  virtual void commit(const Fingerprint& fingerprint, std::size_t n) = 0;

  // As reserve(), but the room is the buffer that the peer has advertised for these bytes (RecvLane::advertise): up to
  // n bytes, empty if there is none or this side cannot write it. Valid until commit(), or until Link::arm().
  virtual std::span<std::byte> reserve_remote(std::size_t n) = 0;

  // Bytes of this lane's stream, counted from the beginning of the link, whose source the transport
  // will not read again.
  virtual std::uint64_t completed() = 0;
  // Bytes taken so far.
  [[nodiscard]] std::uint64_t taken() const { return taken_; }
  // Whether messages are lines of memory.
  [[nodiscard]] bool has_lines() const { return lines_ != nullptr; }
  // push() of a short message without a virtual call: takes all of it or nothing; in the second case push() may still
  // take it. REQUIRES: n <= kShortMessageBytes; no reserve() is uncommitted.
  [[nodiscard]] bool push_short(const Fingerprint& fingerprint, const std::byte* source, std::size_t n) {
    if (lines_ == nullptr || !lines_->try_send(fingerprint, source, n)) return false;
    taken_ += n;
    return true;
  }

  // Processes completions of the device. Taken bytes are sent without that.
  virtual void progress() = 0;
  [[nodiscard]] virtual Status status() = 0;
  [[nodiscard]] const LaneTraits& traits() const { return traits_; }

 protected:
  LaneTraits traits_;
  std::uint64_t taken_ = 0;
  Lines* lines_ = nullptr;  // null if messages are not lines of memory, and in a decorator
};

class RecvLane {
 public:
  // Arrived bytes that are not consumed, in place: valid until consume(), or until Link::arm(). size == 0 if nothing
  // has arrived. A view never spans two operations.
  struct View {
    const std::byte* data = nullptr;
    std::size_t size = 0;
    Fingerprint fingerprint;
  };

  virtual ~RecvLane() = default;
  // The caller needs at most `want` bytes; a transport that reads into staging need not read more.
  virtual View peek(std::size_t want) = 0;
  // False, and nothing is consumed, if the view was in memory that the peer has revoked (Link::revoke): the bytes read
  // are undefined, and no more will arrive. REQUIRES: n <= the size of the last view.
  [[nodiscard]] virtual bool consume(std::size_t n) = 0;
  // Receives up to n bytes directly into user memory, if that saves a copy. Returns the number written; 0 if nothing
  // has arrived, or if peek() and a copy are as fast. Stores the fingerprint of the bytes in *fingerprint.
  virtual std::size_t pull(std::byte* destination, std::size_t n, Fingerprint* fingerprint) = 0;

  // Advertises a buffer for future bytes: the sender may write n bytes of the stream from `position` on to target.base
  // + offset itself (direct put); peek() then shows them there. Sender and transport may ignore it
  // (traits().takes_advertisements). Advertisements must be in stream order. REQUIRES: nothing else accesses that
  // memory until these bytes have been consumed.
  virtual void advertise(std::uint64_t position, const Source& target, std::size_t offset, std::size_t n) = 0;
  // Bytes of this lane's stream consumed so far; counted only by transports that take advertisements.
  [[nodiscard]] std::uint64_t consumed() const { return consumed_; }
  // The last consumed bytes that a lane with checksums (checked/link.h) has not compared yet: if they are damaged, a
  // later consume() or pull() fails. Before that, no other rank may get them, or what is made of them.
  [[nodiscard]] std::size_t unproven() const { return unproven_; }
  // Whether consume(n) leaves no such bytes.
  [[nodiscard]] bool proves(std::size_t n) const { return until_proof_ == 0 || until_proof_ == n; }

  // Whether messages are lines of memory. Then peek() and consume() without a call:
  [[nodiscard]] bool has_lines() const { return lines_ != nullptr; }
  // Whether a next message is there.
  [[nodiscard]] bool line_arrived() const { return lines_ != nullptr && lines_->arrived(); }
  // The payload, if the next message is a short message of this operation with exactly n bytes. Null otherwise; then
  // use peek(). REQUIRES: line_arrived().
  [[nodiscard]] const std::byte* peek_short(const Fingerprint& fingerprint, std::size_t n) {
    return lines_->whole_message(fingerprint, n);
  }
  // REQUIRES: peek_short() has just shown that.
  void consume_short(std::size_t n) {
    lines_->consumed_one();
    consumed_ += n;
  }

  [[nodiscard]] virtual Status status() = 0;
  [[nodiscard]] const LaneTraits& traits() const { return traits_; }

 protected:
  LaneTraits traits_;
  std::uint64_t consumed_ = 0;
  std::size_t unproven_ = 0;
  std::size_t until_proof_ = 0;  // bytes that must be consumed until unproven() is 0 again; 0: it always is
  Lines* lines_ = nullptr;       // as SendLane has it
};

// Both lanes between this rank and one peer.
class Link {
 public:
  virtual ~Link() = default;
  virtual SendLane& send() = 0;
  virtual RecvLane& recv() = 0;

  // Blocking. Before a thread sleeps, it watches its links in an EventSet and calls arm() on them. From then on the
  // peer's next action is an event of a descriptor of wait_fds(), or, if the link has none, signals this rank's wakeup
  // fd. False if something has already happened and the caller should poll again instead of sleeping.
  virtual bool arm() = 0;
  // After the sleep.
  virtual void disarm() = 0;
  // Descriptors for an EventSet; none if the peer wakes this rank through its wakeup fd. Only arm() may change them.
  // Links of one communicator may share a descriptor: then disarm() of any link takes the events of all.
  [[nodiscard]] virtual std::span<const int> wait_fds() const = 0;

  // Whether all taken bytes are sent: flushed() then waits only for acknowledgements, not for room at the peer.
  [[nodiscard]] virtual bool sent() = 0;
  // How many connections of the link have been made anew.
  [[nodiscard]] virtual std::uint64_t reconnects() const = 0;
  // This rank has run its last operation and sends nothing more, so that flushed() becomes true soon. Data of the peer
  // still arrives. The peer detects the end before the leave notice, so call this only if the notice follows soon.
  virtual void end_sending() noexcept = 0;
  // Whether the peer has all taken bytes, or will never get them. Called before this rank leaves: undelivered bytes may
  // be lost when the link is destroyed.
  [[nodiscard]] virtual bool flushed() = 0;
  // This rank has run its last operation on the link: notifies the peer, if the transport needs that.
  virtual void send_leave_notice() = 0;

  // Called before an operation that may send by zero copy (LaneTraits), or is not short: processes notices about memory
  // that was freed or changed since the last one. `use` may differ between ranks. May change traits() of the lanes
  // until the next operation begins.
  virtual void begin_operation(MemoryUse use) = 0;

  // Memory that is sent by zero copy or advertised belongs to the operation. The peer itself (not a device) accesses it
  // only between peek() and consume(), and between reserve_remote() and commit(): the lanes open and close these
  // accesses, so callers need not. After a failed operation, before the caller gets its buffers back, revoke()
  // withdraws the memory that this rank has sent by zero copy or advertised, and ends this rank's accesses to memory of
  // the peer. The link is then no longer usable. revoke() does not wait: until revoked() is true, the peer may still
  // access the memory. For a thread of this process that takes as long as its access. For a process, which maps the
  // memory itself, revoked() becomes true in the end even if that process is stopped; its consume() then returns false.
  // A process that was stopped between reserve_remote() and commit() may still write the rest of that piece when it
  // continues. Data sent before still arrives. If the communicator does not send a reason, a peer that waits for this
  // rank gets an error after a while.
  virtual void revoke() noexcept = 0;
  [[nodiscard]] virtual bool revoked() noexcept = 0;

 protected:
  // Called after wait_fds() has changed: the next EventSet::watch() adds them.
  void forget_watch() { watched_in_ = 0; }

 private:
  friend class EventSet;
  std::uint64_t watched_in_ = 0;  // id of the last EventSet that watched its descriptors
};

}  // namespace tutti::internal::transport
