// CRC32C (Castagnoli), the checksum of iSCSI, ext4 and SCTP (RFC 3720, section 12.1).
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tutti::internal::transport::checked {

// The checksum of the bytes behind those whose checksum is `before`: crc32c(ab) == crc32c(b, crc32c(a)). 0: of none.
std::uint32_t crc32c(const std::byte* data, std::size_t n, std::uint32_t before = 0);

// One way to compute it. All give the same result.
struct Crc32c {
  std::string_view name;
  std::uint32_t (*extend)(std::uint32_t state, const std::byte* data, std::size_t n);  // without the two inversions
};
// Those that this processor can run, fastest first; never empty.
std::span<const Crc32c> runnable_crc32c();

}  // namespace tutti::internal::transport::checked
