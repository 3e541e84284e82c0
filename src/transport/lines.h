// Short messages in memory that both sides of a link see, each a cache line, with its payload in it or in a room of its
// own: what a transport shows of its lanes so that these cost no call. A lane that has more than that, or anything
// unusual, to do is left to its verbs (transport.h), which work on the same state.
//
// Threads: as the link.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "os/asymmetric_fence.h"
#include "transport/fingerprint.h"
#include "transport/wakeup_fd.h"

namespace tutti::internal::transport {

// The payload of a line.
inline constexpr std::size_t kLineBytes = 32;
// The payload of a short message. From 64 bytes on they take 0.5 to 0.8 of the time that they take by calls. Where
// ranks take turns, so many bytes have rooms of their own, beside slots: with four and eight ranks scatter, broadcast
// and reduce of 1 KiB take 0.3 to 0.5 of the time that they take with slots alone.
inline constexpr std::size_t kShortMessageBytes = 1024;

// HeaderLine::length_and_payload.
inline constexpr std::uint32_t kLengthBits = 29;
inline constexpr std::uint32_t kLengthMask = (1U << kLengthBits) - 1;

// A message, or what says where it is.
//
// Whatever the other side writes here is checked before it is used: it must not make this side read or write
// outside its own and the memory that was sent by zero copy or advertised, nor loop for ever.
struct alignas(64) HeaderLine {
  // Number of this message in its lane, from 1, modulo 2^32: written last (release), polled by the
  // receiver (acquire).
  std::atomic<std::uint32_t> sequence;
  // Length in the low kLengthBits, above where the payload is (shm/layout.h); never 0 bytes. 0 above: in this line.
  std::uint32_t length_and_payload;
  // How many messages of the opposite lane this side has consumed: saves the peer a miss on `consumed`.
  std::uint32_t acknowledged;
  Fingerprint fingerprint;
  std::byte inline_bytes[kLineBytes];
};
static_assert(sizeof(HeaderLine) == 64);

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
using HeaderRing = Ring<HeaderLine>;
using PayloadRing = Ring<std::byte>;

// Where the payloads of a lane's short messages lie that are too long for a line.
struct ShortRooms {
  PayloadRing ring{nullptr, 1, 0};
  std::size_t bytes = 0;          // of a room, at most kShortMessageBytes; 0: there are none
  std::uint32_t length_bits = 0;  // of length_and_payload, beside the length
};

// memcpy of 1 to kLineBytes without the call: two overlapping moves of a fixed size.
inline void copy_line(std::byte* target, const std::byte* source, std::size_t n) {
  const auto both_ends = [&]<std::size_t kSize>(std::integral_constant<std::size_t, kSize>) {
    std::array<std::byte, kSize> head;
    std::array<std::byte, kSize> tail;
    std::memcpy(head.data(), source, kSize);
    std::memcpy(tail.data(), source + n - kSize, kSize);
    std::memcpy(target, head.data(), kSize);
    std::memcpy(target + n - kSize, tail.data(), kSize);
  };
  if (n >= 16) {
    both_ends(std::integral_constant<std::size_t, 16>{});
  } else if (n >= 8) {
    both_ends(std::integral_constant<std::size_t, 8>{});
  } else if (n >= 4) {
    both_ends(std::integral_constant<std::size_t, 4>{});
  } else {
    for (std::size_t i = 0; i < n; ++i) target[i] = source[i];
  }
}

// memcpy of a short message.
inline void copy_short(std::byte* target, const std::byte* source, std::size_t n) {
  if (n <= kLineBytes) {
    copy_line(target, source, n);
  } else {
    std::memcpy(target, source, n);
  }
}

// Hints that the peer will read this line next: it moves from this core's own caches to the shared one,
// where the peer finds it sooner. A no-op on processors without the instruction. Measured between two
// cores: 5 % at 8 bytes, 20 % from 256 bytes to 1 KiB; beyond, the hints cost more than they save. Where
// the peer may run on this very core they are wrong.
inline void demote_line(const void* line) {
#if defined(__x86_64__)
  asm volatile("cldemote %0" : : "m"(*static_cast<const char*>(line)) : "memory");
#else
  (void)line;
#endif
}

// Both lanes of a link, as far as short messages need them.
struct Lines {
  HeaderRing out{nullptr, 1, 0};
  HeaderRing in{nullptr, 1, 0};
  ShortRooms rooms_out;
  ShortRooms rooms_in;
  HeaderLine* next_out = nullptr;       // of the next message
  const HeaderLine* next_in = nullptr;  // the same
  std::uint32_t ahead = 0;              // so many short messages may be under way
  std::uint32_t published = 0;          // messages in our lane
  std::uint32_t acknowledged = 0;       // messages of our lane that the peer has consumed, as last seen
  std::uint32_t received = 0;           // messages of the peer's lane that we have consumed
  std::size_t open_bytes = 0;           // of the message that has been opened and not been consumed; 0: there is none
  std::atomic<std::uint32_t>* consumed = nullptr;             // `received`, for the peer
  const std::atomic<std::uint32_t>* peer_sleeping = nullptr;  // ring it
  int peer_wakeup_fd = -1;
  bool own_processors = false;  // neither side takes turns on a processor with other ranks

  // Sends the message that lies, or is described, in next_out.
  void publish(const Fingerprint& fingerprint, std::uint32_t length_and_payload) {
    HeaderLine& h = *next_out;
    h.length_and_payload = length_and_payload;
    h.acknowledged = received;
    h.fingerprint = fingerprint;
    h.sequence.store(++published, std::memory_order_release);
    if (own_processors) demote_line(&h);
    next_out = &out[published];
    wake_peer();
  }
  // n: up to kLineBytes. REQUIRES: fewer than `ahead` messages are under way.
  void send(const Fingerprint& fingerprint, const std::byte* source, std::size_t n) {
    copy_line(next_out->inline_bytes, source, n);
    publish(fingerprint, static_cast<std::uint32_t>(n));
  }
  // The same of up to kShortMessageBytes, if there is room, as far as is known here.
  [[nodiscard]] bool try_send(const Fingerprint& fingerprint, const std::byte* source, std::size_t n) {
    if (published - acknowledged >= ahead) [[unlikely]]
      return false;
    if (n <= kLineBytes) {
      send(fingerprint, source, n);
      return true;
    }
    if (n > rooms_out.bytes) [[unlikely]]
      return false;
    send_in_room(fingerprint, source, n);
    return true;
  }
  // REQUIRES: the payload has a room, and fewer than `ahead` messages are under way.
  void send_in_room(const Fingerprint& fingerprint, const std::byte* source, std::size_t n) {
    std::byte* const room = &rooms_out.ring[published];
    std::memcpy(room, source, n);
    if (own_processors) {
      for (std::size_t i = 0; i < n; i += sizeof(HeaderLine)) demote_line(room + i);
    }
    publish(fingerprint, static_cast<std::uint32_t>(n) | rooms_out.length_bits);
  }

  // Whether the next message is there.
  [[nodiscard]] bool arrived() const { return next_in->sequence.load(std::memory_order_acquire) == received + 1; }
  // Its n bytes, if that is just what it is: n bytes in its line or its room, of that operation, from a peer that says
  // nothing wrong. Else null. REQUIRES: arrived(). consumed_one() follows.
  [[nodiscard]] const std::byte* whole_message(const Fingerprint& fingerprint, std::size_t n) {
    const HeaderLine& h = *next_in;
    // Read once: the peer may write it again.
    const std::uint32_t length = *const_cast<const volatile std::uint32_t*>(&h.length_and_payload);
    const std::uint32_t count = *const_cast<const volatile std::uint32_t*>(&h.acknowledged);
    const bool in_line = n <= kLineBytes;
    const std::uint32_t expected = static_cast<std::uint32_t>(n) | (in_line ? 0 : rooms_in.length_bits);
    const bool fits = (in_line || n <= rooms_in.bytes) && length == expected && h.fingerprint == fingerprint;
    if (!fits || open_bytes != 0 || !see_acknowledged(count)) [[unlikely]]
      return nullptr;
    return in_line ? h.inline_bytes : &rooms_in.ring[received];
  }
  // All of the next message.
  void consumed_one() {
    open_bytes = 0;
    next_in = &in[++received];
    consumed->store(received, std::memory_order_release);
    wake_peer();
  }

  // The peer says that it has consumed so many messages. False if they are more than were sent. Fewer than before says
  // nothing new: what comes beside messages is read later than the peer's counter.
  [[nodiscard]] bool see_acknowledged(std::uint32_t count) {
    const std::uint32_t under_way = published - count;
    if (under_way <= published - acknowledged) [[likely]] {
      acknowledged = count;
      return true;
    }
    return static_cast<std::int32_t>(under_way) >= 0;
  }
  void wake_peer() const {
    // See wakeup_fd.h: the sleeper's fence stands in for one between our store and this load.
    asymmetric_fence_light();
    if (peer_sleeping->load(std::memory_order_relaxed) != 0) [[unlikely]]
      EventFd::ring(peer_wakeup_fd);
  }
};

}  // namespace tutti::internal::transport
