// Short messages in memory that both sides of a link access. Each is a cache line, with its payload in it or behind it.
// A transport exposes this state of its lanes so that short messages cost no call. All other work of a lane, including
// every unusual case, goes through its verbs (transport.h), which use the same state.
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
// The longest payload of a short message. From 64 bytes on, short messages take 0.5 to 0.8 of the time that they take
// by calls.
inline constexpr std::size_t kShortMessageBytes = 1024;

// HeaderLine::length_and_payload: the length in the low bits, above where the payload is.
inline constexpr std::uint32_t kLengthBits = 30;
inline constexpr std::uint32_t kLengthMask = (1U << kLengthBits) - 1;
// Above: 0 in this line, 1 in the lane's ring, else as the transport says (shm/layout.h).
inline constexpr std::uint32_t kInRing = 1U << kLengthBits;

// A message, or a descriptor of its payload.
//
// This side checks everything that the peer writes here before it uses it. The peer must not be able to make this side
// loop without end, or access memory other than its own and memory that was sent by zero copy or advertised.
struct alignas(64) HeaderLine {
  // Number of this message in its lane, from 1, modulo 2^32: written last (release), polled by the
  // receiver (acquire).
  std::atomic<std::uint32_t> sequence;
  // A message has at least 1 byte. 0: none, the messages behind this one go through another ring.
  std::uint32_t length_and_payload;
  // Number of messages of the opposite lane that this side has consumed: saves the peer a cache miss on `consumed`.
  std::uint32_t acknowledged;
  Fingerprint fingerprint;
  std::byte inline_bytes[kLineBytes];
};
static_assert(sizeof(HeaderLine) == 64);

// A lane's slots: of each a header line, and behind it `payload_bytes` for a payload. Message m, from 0, has slot m
// modulo their number.
class SlotRing {
 public:
  SlotRing() = default;
  // `slots` is a power of two, so that the numbers of messages may pass 2^32.
  SlotRing(HeaderLine* first, std::uint32_t slots, std::size_t payload_bytes)
      : first_(reinterpret_cast<std::byte*>(first)),
        stride_(sizeof(HeaderLine) + payload_bytes),
        mask_(slots - 1),
        payload_bytes_(static_cast<std::uint32_t>(payload_bytes)) {}
  // Of message `number`, modulo 2^32.
  [[nodiscard]] HeaderLine& operator[](std::uint32_t number) const {
    return *reinterpret_cast<HeaderLine*>(first_ + (number & mask_) * stride_);
  }
  [[nodiscard]] std::uint32_t slots() const { return mask_ + 1; }
  [[nodiscard]] std::size_t payload_bytes() const { return payload_bytes_; }

 private:
  std::byte* first_ = nullptr;
  std::size_t stride_ = sizeof(HeaderLine);
  std::uint32_t mask_ = 0;
  std::uint32_t payload_bytes_ = 0;
};
// The payload of a slot.
inline std::byte* payload_behind(HeaderLine* header) {
  return reinterpret_cast<std::byte*>(header + 1);
}
inline const std::byte* payload_behind(const HeaderLine* header) {
  return reinterpret_cast<const std::byte*>(header + 1);
}

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

// Hints that the peer will read this line next: the line moves from this core's private caches to the shared cache,
// from which the peer reads it sooner. A no-op on processors without the instruction. Measured gain between two cores:
// 5 % at 8 bytes, 20 % from 256 bytes to 1 KiB; for longer messages the hints cost more than they save. They are wrong
// if the peer may run on the same core.
inline void demote_line(const void* line) {
#if defined(__x86_64__)
  asm volatile("cldemote %0" : : "m"(*static_cast<const char*>(line)) : "memory");
#else
  (void)line;
#endif
}

// The state of both lanes of a link that short messages need.
struct Lines {
  SlotRing out;
  SlotRing in;
  HeaderLine* next_out = nullptr;       // of the next message
  const HeaderLine* next_in = nullptr;  // the same
  std::uint32_t ahead = 0;              // limit of short messages in flight
  std::uint32_t published = 0;          // messages in our lane
  std::uint32_t acknowledged = 0;       // messages of our lane that the peer has consumed, as last seen
  std::uint32_t received = 0;           // messages of the peer's lane that we have consumed
  std::size_t open_bytes = 0;           // of the message that has been opened and not been consumed; 0: there is none
  std::atomic<std::uint32_t>* consumed = nullptr;             // `received`, for the peer
  const std::atomic<std::uint32_t>* peer_sleeping = nullptr;  // ring it
  int peer_wakeup_fd = -1;
  bool own_processors = false;  // neither side is oversubscribed

  // Sends the message, or the descriptor, in next_out.
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
  // n: up to kLineBytes. REQUIRES: fewer than `ahead` messages are in flight.
  void send(const Fingerprint& fingerprint, const std::byte* source, std::size_t n) {
    copy_line(next_out->inline_bytes, source, n);
    publish(fingerprint, static_cast<std::uint32_t>(n));
  }
  // The same of up to kShortMessageBytes, if `ahead` and the slots allow it, as far as is known here.
  [[nodiscard]] bool try_send(const Fingerprint& fingerprint, const std::byte* source, std::size_t n) {
    if (published - acknowledged >= ahead) [[unlikely]]
      return false;
    if (n <= kLineBytes) {
      send(fingerprint, source, n);
      return true;
    }
    if (n > out.payload_bytes()) [[unlikely]]
      return false;
    send_in_slot(fingerprint, source, n);
    return true;
  }
  // REQUIRES: n fits into a slot, and fewer than `ahead` messages are in flight.
  void send_in_slot(const Fingerprint& fingerprint, const std::byte* source, std::size_t n) {
    std::byte* const payload = payload_behind(next_out);
    std::memcpy(payload, source, n);
    if (own_processors) {
      for (std::size_t i = 0; i < n; i += sizeof(HeaderLine)) demote_line(payload + i);
    }
    publish(fingerprint, static_cast<std::uint32_t>(n) | kInRing);
  }

  // Whether the next message is there.
  [[nodiscard]] bool arrived() const { return next_in->sequence.load(std::memory_order_acquire) == received + 1; }
  // The n bytes of the next message, if it is a correct message of this operation with exactly n bytes, in its line or
  // its slot. Else null. REQUIRES: arrived(). consumed_one() follows.
  [[nodiscard]] const std::byte* whole_message(const Fingerprint& fingerprint, std::size_t n) {
    const HeaderLine& h = *next_in;
    // Read once: the peer may write it again.
    const std::uint32_t length = *const_cast<const volatile std::uint32_t*>(&h.length_and_payload);
    const std::uint32_t count = *const_cast<const volatile std::uint32_t*>(&h.acknowledged);
    const bool in_line = n <= kLineBytes;
    const std::uint32_t expected = static_cast<std::uint32_t>(n) | (in_line ? 0 : kInRing);
    const bool fits = (in_line || n <= in.payload_bytes()) && length == expected && h.fingerprint == fingerprint;
    if (!fits || open_bytes != 0 || !see_acknowledged(count)) [[unlikely]]
      return nullptr;
    return in_line ? h.inline_bytes : payload_behind(&h);
  }
  // All of the next message.
  void consumed_one() {
    open_bytes = 0;
    next_in = &in[++received];
    consumed->store(received, std::memory_order_release);
    wake_peer();
  }

  // The peer has consumed `count` messages. False if that is more than were sent. A smaller count than before is
  // ignored: counts in messages are read later than the peer's counter.
  [[nodiscard]] bool see_acknowledged(std::uint32_t count) {
    const std::uint32_t under_way = published - count;
    if (under_way <= published - acknowledged) [[likely]] {
      acknowledged = count;
      return true;
    }
    return static_cast<std::int32_t>(under_way) >= 0;
  }
  void wake_peer() const {
    // See wakeup_fd.h: the sleeper's fence replaces one between this side's store and this load.
    asymmetric_fence_light();
    if (peer_sleeping->load(std::memory_order_relaxed) != 0) [[unlikely]]
      EventFd::ring(peer_wakeup_fd);
  }
};

}  // namespace tutti::internal::transport
