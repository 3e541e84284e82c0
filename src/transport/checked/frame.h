// What precedes the payload of each frame of a checked lane.
//
// Threads: any; nothing here has state.
#pragma once

#include <endian.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "transport/checked/crc32c.h"
#include "transport/fingerprint.h"

namespace tutti::internal::transport::checked {

// Of a frame. `number`: of the frame in its lane, from 0, modulo 2^32.
struct FrameHeader {
  std::uint32_t length = 0;  // of the payload, 1 or more
  std::uint32_t checksum = 0;
  std::uint32_t number = 0;
};

// On the wire, little endian: the three words, then the CRC32C of them and of the fingerprint that travels with them.
inline constexpr std::size_t kHeaderBytes = 16;
using HeaderBytes = std::array<std::byte, kHeaderBytes>;

inline HeaderBytes encode(const FrameHeader& header, const Fingerprint& fingerprint) {
  const std::array<std::uint32_t, 8> covered{htole32(header.length),         htole32(header.checksum),
                                             htole32(header.number),         htole32(fingerprint.sequence),
                                             htole32(fingerprint.call),      htole32(fingerprint.root),
                                             htole32(fingerprint.count_low), htole32(fingerprint.count_high)};
  const std::uint32_t sum = htole32(crc32c(reinterpret_cast<const std::byte*>(covered.data()), sizeof covered));
  HeaderBytes bytes;
  std::memcpy(bytes.data(), covered.data(), kHeaderBytes - sizeof sum);
  std::memcpy(bytes.data() + kHeaderBytes - sizeof sum, &sum, sizeof sum);
  return bytes;
}

// Nothing if the bytes or the fingerprint are not those that were sent.
inline std::optional<FrameHeader> decode(const std::byte* bytes, const Fingerprint& fingerprint) {
  std::array<std::uint32_t, 3> words{};
  std::memcpy(words.data(), bytes, sizeof words);
  const FrameHeader header{le32toh(words[0]), le32toh(words[1]), le32toh(words[2])};
  if (std::memcmp(encode(header, fingerprint).data(), bytes, kHeaderBytes) != 0 || header.length == 0) return {};
  return header;
}

}  // namespace tutti::internal::transport::checked
