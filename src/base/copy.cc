#include "base/copy.h"

#include <atomic>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tutti::internal {

#if defined(__x86_64__)
namespace {

constexpr std::size_t kLine = 64;

// These copy whole cache lines to an aligned target.
void copy_lines_sse2(std::byte* target, const std::byte* source, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kLine) {
    const auto* const from = reinterpret_cast<const __m128i*>(source + i);
    auto* const to = reinterpret_cast<__m128i*>(target + i);
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  _mm_sfence();
}

// Takes 0.93 of the time of copy_lines_sse2, from memory to memory.
[[gnu::target("avx2")]] void copy_lines_avx2(std::byte* target, const std::byte* source, std::size_t bytes) {
  std::size_t i = 0;
  for (; i + 2 * kLine <= bytes; i += 2 * kLine) {
    const auto* const from = reinterpret_cast<const __m256i*>(source + i);
    auto* const to = reinterpret_cast<__m256i*>(target + i);
    const __m256i a = _mm256_loadu_si256(from);
    const __m256i b = _mm256_loadu_si256(from + 1);
    const __m256i c = _mm256_loadu_si256(from + 2);
    const __m256i d = _mm256_loadu_si256(from + 3);
    _mm256_stream_si256(to, a);
    _mm256_stream_si256(to + 1, b);
    _mm256_stream_si256(to + 2, c);
    _mm256_stream_si256(to + 3, d);
  }
  copy_lines_sse2(target + i, source + i, bytes - i);
}

using Copy = decltype(&copy_streaming);
const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;

template <Copy copy_lines>
void copy_streaming_by(std::byte* target, const std::byte* source, std::size_t bytes) {
  const std::size_t head = (std::size_t{0} - reinterpret_cast<std::uintptr_t>(target)) % kLine;
  if (bytes < head + kLine) return copy_bytes(target, source, bytes);
  const std::size_t lines = (bytes - head) / kLine * kLine;
  const std::size_t tail = head + lines;
  if (head != 0) std::memcpy(target, source, head);
  copy_lines(target + head, source + head, lines);
  if (tail != bytes) std::memcpy(target + tail, source + tail, bytes - tail);
}

}  // namespace

void copy_streaming(std::byte* target, const std::byte* source, std::size_t bytes) {
  if (has_avx2) return copy_streaming_by<&copy_lines_avx2>(target, source, bytes);
  copy_streaming_by<&copy_lines_sse2>(target, source, bytes);
}

std::vector<Copy> streaming_copies() {
  std::vector<Copy> copies{&copy_streaming_by<&copy_lines_sse2>};
  if (has_avx2) copies.push_back(&copy_streaming_by<&copy_lines_avx2>);
  return copies;
}

#else

// Not measured on other processors, for which non-temporal stores are only hints.
void copy_streaming(std::byte* target, const std::byte* source, std::size_t bytes) {
  copy_bytes(target, source, bytes);
  std::atomic_thread_fence(std::memory_order_release);
}

std::vector<void (*)(std::byte* target, const std::byte* source, std::size_t bytes)> streaming_copies() {
  return {&copy_streaming};
}

#endif

}  // namespace tutti::internal
