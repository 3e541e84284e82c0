// Copies of possibly long data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tutti::internal {

// memcpy, which was measured to be as fast as loops of 256- or 512-bit vectors for 4 to 256 KiB, except in one case.
// From about 2 KiB on memcpy uses `rep movsb`, and some processors (Zen 3: 2 GB/s instead of 40) are slow if the source
// is 1 to 31 bytes before the target, modulo 4,096. In that case this copies shorter pieces, which memcpy moves with
// vectors: 11 to 20 GB/s. Both pointers may be null if `bytes` is 0.
inline void copy_bytes(std::byte* target, const std::byte* source, std::size_t bytes) {
  constexpr std::size_t kPieceBytes = 2048;
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::uintptr_t kJustBefore = 32;
  const std::uintptr_t before =
      (reinterpret_cast<std::uintptr_t>(target) - reinterpret_cast<std::uintptr_t>(source)) % kPage;
  if (before - 1 < kJustBefore - 1) {
    for (; bytes > kPieceBytes; bytes -= kPieceBytes, target += kPieceBytes, source += kPieceBytes) {
      std::memcpy(target, source, kPieceBytes);
    }
  }
  if (bytes != 0) std::memcpy(target, source, bytes);
}

// copy_bytes() with non-temporal stores, which go past the caches. Orders its stores before it returns; partial lines
// are stored as usual.
void copy_streaming(std::byte* target, const std::byte* source, std::size_t bytes);
// All implementations that copy_streaming() may use on this processor; for tests.
std::vector<void (*)(std::byte* target, const std::byte* source, std::size_t bytes)> streaming_copies();

}  // namespace tutti::internal
