// What connects two ranks. A Link holds one lane to the peer and one from it; each lane is a stream of
// bytes, in order, cut into pieces as the transport likes. The executor moves all data through these
// few verbs, whatever lies beneath: slots in shared memory, sockets, a NIC that writes slots, memory of
// the peer that is mapped here.
//
// Addresses. User memory comes as a Source, which is bound once per call and names the region of tuttiMemAlloc that the
// buffer lies in, so that no piece has to look that up.
//
// Threads. A link belongs to one communicator and is used by one thread at a time: the one that runs its operations, or
// finalizes it. The peer uses its end at the same time. Links of one communicator may share what it alone uses (its
// RDMA context), so they are all used by the same thread; what links of several communicators share looks after itself.
//
// All verbs are pure, so that a decorator (the tests have one) cannot forget one; what a transport does not have it
// inherits from plain.h. Lines are the exception. They are no verbs, but the state beneath them, which a lane shows
// (lines_) if its messages are lines of memory, so that these cost no call. A decorator must leave lines_ null, or what
// it decorates is used behind its back; then everything goes through its verbs.
//
// Failure. No verb blocks or crashes because of a peer. A lane that has failed takes no more than it had room for, and
// says why in status(); the executor's wait policy asks for it. For want of memory a verb may throw std::bad_alloc: the
// link is then of no more use, and the operation fails (CpuExecutor::run). revoke(), revoked() and destruction, which
// come after that, never throw.
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

// What every lane takes at the least though the peer consumes nothing.
inline constexpr std::size_t kLeastRoomBytes = 64;
// What is pushed in one call, up to this many bytes, is one message, also where several calls are needed until all of
// it is taken: peek() shows so much of it, in the end, as the receiver has not consumed, or kLeastViewBytes if that is
// less. So an element is never cut for good.
inline constexpr std::size_t kWholeMessageBytes = 32 * 1024;
inline constexpr std::size_t kLeastViewBytes = kMostElementBytes;

// Of what an operation sends: whether the peer had better read it where it lies, with one copy, which the peer makes
// alone, than have it copied to where it looks, with two.
enum class Reading : std::uint8_t {
  kNever,
  kFromAfar,  // where the peer's processor is far, from which a copy is slow to come
  kAlways
};

// How an operation uses the memory of its call, as a link asks before it begins.
struct MemoryUse {
  // Of ordinary memory that it sends, by a peer that is another process.
  Reading reading = Reading::kNever;
  // It only moves bytes: peers may have left what it receives to be read, whatever it sends.
  bool only_moves = false;
  // Whether such reading pays also between ranks that take turns on processors, which is the same near and far.
  bool read_in_turns = false;
  // It overwrites input that it has sent, once the peer has read what was left to it by zero copy.
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
  bool puts_directly = false;         // push() and commit() write to advertised buffers too, not reserve_remote() alone
  // Zero copy: of at least this many bytes push() copies nothing, the peer or the device reads the source in place (see
  // completed()). For sources in a region, and for any source. SIZE_MAX: never.
  std::size_t zcopy_bytes = SIZE_MAX;
  std::size_t zcopy_any_bytes = SIZE_MAX;  // of a receiving lane: from which size on it may read what the peer has left
  // Neither of the two is ever less, whatever operation begins. Does not change.
  std::size_t least_zcopy_bytes = SIZE_MAX;
  // From this size on a reserved slot is best written past the cache, and not read. May change with each message.
  std::size_t streamed_bytes = SIZE_MAX;
  std::size_t piece_bytes = 0;  // preferred piece; an empty lane usually takes a message of up to this size whole
};

class SendLane {
 public:
  virtual ~SendLane() = default;

  // Takes up to n bytes from source.base + offset, in order. Returns how many were taken, 0 if the lane
  // is full at present. What was taken may be read until completed() has passed it.
  // A lane that the peer does not empty takes kLeastRoomBytes in all; more is not promised, whatever the traits say:
  // a caller that waits for room goes on receiving meanwhile, or it may wait for ever.
  // REQUIRES: after less than n, the next call goes on with the bytes that follow, of the same operation.
  virtual std::size_t push(const Fingerprint& fingerprint, const Source& source, std::size_t offset, std::size_t n) = 0;

  // Writing into the slot itself: room for up to n bytes in the outgoing slot, empty if the lane is full at present
  // or has no slots. Nothing is sent before commit(m), m <= the room's size; a second reserve() before that returns the
  // same room, or a longer one if that was shorter than both n and kLeastViewBytes: so it has that length after some
  // calls.
  virtual std::span<std::byte> reserve(std::size_t n) = 0;
  virtual void commit(const Fingerprint& fingerprint, std::size_t n) = 0;

  // As reserve(), but the room is the buffer that the peer has advertised for these bytes (RecvLane::advertise): up to
  // n bytes, empty if there is none or it cannot be written from here. Valid until commit(), or until Link::arm().
  virtual std::span<std::byte> reserve_remote(std::size_t n) = 0;

  // Bytes of this lane's stream, counted from the beginning of the link, whose source the transport
  // will not read again.
  virtual std::uint64_t completed() = 0;
  // Bytes taken so far.
  [[nodiscard]] std::uint64_t taken() const { return taken_; }
  // Whether messages are lines of memory.
  [[nodiscard]] bool has_lines() const { return lines_ != nullptr; }
  // push() of a short message without a call: all of it or nothing, and then push() may know more.
  // REQUIRES: n <= kShortMessageBytes; nothing of a reserve() is left to commit.
  [[nodiscard]] bool push_short(const Fingerprint& fingerprint, const std::byte* source, std::size_t n) {
    if (lines_ == nullptr || !lines_->try_send(fingerprint, source, n)) return false;
    taken_ += n;
    return true;
  }

  // Takes note of what the device has completed. What was taken is on its way without that.
  virtual void progress() = 0;
  [[nodiscard]] virtual Status status() = 0;
  [[nodiscard]] const LaneTraits& traits() const { return traits_; }

 protected:
  LaneTraits traits_;
  std::uint64_t taken_ = 0;
  Lines* lines_ = nullptr;  // null where messages are no lines of memory, and of a decorator
};

class RecvLane {
 public:
  // What has arrived and is not yet consumed, where it lies: valid until consume(), or until Link::arm().
  // size == 0 when nothing has arrived. A view never spans two operations.
  struct View {
    const std::byte* data = nullptr;
    std::size_t size = 0;
    Fingerprint fingerprint;
  };

  virtual ~RecvLane() = default;
  // At most `want` bytes are of interest; a transport that reads into staging need not read more.
  virtual View peek(std::size_t want) = 0;
  // Returns false, and has consumed nothing, if the view lay in memory of the peer that the peer has revoked
  // (Link::revoke): what was read may be anything, and no more will come.
  // REQUIRES: n <= the size of the last view.
  [[nodiscard]] virtual bool consume(std::size_t n) = 0;
  // Receives up to n bytes straight into user memory, where the transport can save a copy so. Returns
  // the number written; 0 if nothing has arrived, or if peek() and a copy are as short. The fingerprint of the
  // bytes is stored in *fingerprint.
  virtual std::size_t pull(std::byte* destination, std::size_t n, Fingerprint* fingerprint) = 0;

  // Advertises the buffer of bytes that are still to come: n bytes of the stream from `position` on may be written to
  // target.base + offset by the sender itself (direct put); peek() then shows them there. The sender need not make use
  // of it, nor need a transport (traits().takes_advertisements). Advertisements come in stream order.
  // REQUIRES: nothing else touches that memory until those bytes have been consumed.
  virtual void advertise(std::uint64_t position, const Source& target, std::size_t offset, std::size_t n) = 0;
  // Bytes of this lane's stream consumed so far; counted only by transports that take advertisements.
  [[nodiscard]] std::uint64_t consumed() const { return consumed_; }

  // Whether messages are lines of memory. Then peek() and consume() without a call:
  [[nodiscard]] bool has_lines() const { return lines_ != nullptr; }
  // Whether a next message is there.
  [[nodiscard]] bool line_arrived() const { return lines_ != nullptr && lines_->arrived(); }
  // Its n bytes, which are all of it, a short message of that operation. Null if it is anything else: then peek() says
  // what. REQUIRES: line_arrived().
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
  Lines* lines_ = nullptr;  // as SendLane has it
};

// Both lanes between this rank and one peer.
class Link {
 public:
  virtual ~Link() = default;
  virtual SendLane& send() = 0;
  virtual RecvLane& recv() = 0;

  // Blocking. Before a thread sleeps it watches the links it waits for in an EventSet and calls arm() on them: from
  // then on the peer's next action is an event of a descriptor of wait_fds(), or rings this rank's wakeup fd if the
  // link has none. Returns false if something has happened already and the caller should look again instead of
  // sleeping.
  virtual bool arm() = 0;
  // After the sleep.
  virtual void disarm() = 0;
  // Descriptors for an EventSet; none if the peer wakes this rank through its wakeup fd. The same as long as the link
  // lives. Links of one communicator may have one together: then disarm() of any takes the events of all.
  [[nodiscard]] virtual std::span<const int> wait_fds() const = 0;

  // Whether all bytes taken are on their way: flushed() then waits for no more than the word that they have arrived,
  // and not for the peer to make room.
  [[nodiscard]] virtual bool sent() = 0;
  // This rank has run its last operation and sends nothing more: helps flushed() to come true soon. What the peer sends
  // still arrives. It learns of the end before the leave notice: so only where that follows soon.
  virtual void end_sending() noexcept = 0;
  // Whether all bytes taken are with the peer, or never will be. Asked before this rank leaves: what a link has not
  // delivered when it is destroyed may be lost.
  [[nodiscard]] virtual bool flushed() = 0;
  // This rank has run its last operation on the link: the peer is told, where that helps it.
  virtual void send_leave_notice() = 0;

  // Before an operation that may send by zero copy (LaneTraits), or is not a short one: hears of memory that has been
  // freed or changed since the last one. Ranks may differ in `use`. May change what the lanes can do (traits())
  // until the next operation begins.
  virtual void begin_operation(MemoryUse use) = 0;

  // Memory that is sent by zero copy or advertised belongs to the operation. Where the peer itself touches it, and not
  // a device, it does so only between peek() and consume(), and between reserve_remote() and commit(): the lanes open
  // and close these accesses, and nobody else has to. After a failed operation, before its buffers go back to the
  // caller, revoke() withdraws what this rank has sent by zero copy and advertised, and ends this rank's own accesses
  // in memory of the peer; the link is of no more use. It does not wait: until revoked() the peer may still be touching
  // the memory. A thread of this process does so as long as it takes; for a process, which has the memory mapped
  // itself, revoked() is true in the end even if that process has been stopped, and its consume() then says that what
  // it has read is void; a process that was stopped between reserve_remote() and commit() may still write the rest of
  // that piece when it goes on. What was sent before still arrives. After a while, if the communicator has not said
  // why, a peer that waits for this rank gets an error.
  virtual void revoke() noexcept = 0;
  [[nodiscard]] virtual bool revoked() noexcept = 0;

 private:
  friend class EventSet;
  std::uint64_t watched_in_ = 0;  // the EventSet that watches its descriptors: the last one, while it lives
};

}  // namespace tutti::internal::transport
