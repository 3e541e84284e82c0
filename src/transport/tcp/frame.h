// The wire format of the tcp transport: a stream carries frames, each a header and its payload.
//
// Threads: any; nothing here has state.
#pragma once

#include <endian.h>

#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace tutti::internal::transport::tcp {

// Payload of the longest frame. Long messages are cut here so that several streams share the load: a
// stream carries one frame at a time and the next frame goes to the next stream.
inline constexpr std::size_t kFrameBytes = 256 * 1024;

// Little endian on the wire. The top byte of `mark_and_length` is kMark, the rest the payload length, 1..kFrameBytes;
// any other header comes from an unauthenticated peer or from lost framing.
struct FrameHeader {
  std::uint32_t mark_and_length;
  std::uint32_t sequence;
  std::uint32_t call;
  std::uint32_t root;
  std::uint32_t count_low;
  std::uint32_t count_high;
};
inline constexpr std::size_t kHeaderBytes = 24;
static_assert(sizeof(FrameHeader) == kHeaderBytes);

inline constexpr std::uint32_t kMark = 0x75;

inline FrameHeader encode(std::size_t length, const Fingerprint& fingerprint) {
  return {htole32(kMark << 24 | static_cast<std::uint32_t>(length)),
          htole32(fingerprint.sequence),
          htole32(fingerprint.call),
          htole32(fingerprint.root),
          htole32(fingerprint.count_low),
          htole32(fingerprint.count_high)};
}

// The payload length, or 0 if this is not a header.
inline std::size_t decoded_length(const FrameHeader& header) {
  const std::uint32_t word = le32toh(header.mark_and_length);
  const std::size_t length = word & 0xffffff;
  return word >> 24 == kMark && length <= kFrameBytes ? length : 0;
}

inline Fingerprint decoded_fingerprint(const FrameHeader& header) {
  return {le32toh(header.sequence), le32toh(header.call), le32toh(header.root), le32toh(header.count_low),
          le32toh(header.count_high)};
}

}  // namespace tutti::internal::transport::tcp
