// By tables on any processor; by the processor's instructions for it; and by folding: a message of many words is
// reduced to 64 bytes with the same checksum by carry-less products, 256 bytes at a time (V. Gopal et al., "Fast CRC
// Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009). Highway has no vector product of this
// kind among the targets that the library compiles, and the word instruction alone reaches a quarter of the speed: 43
// GB/s and 10.
#include "transport/checked/crc32c.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace tutti::internal::transport::checked {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // reflected: bit 31 is the coefficient of x^0

constexpr std::uint32_t times_x(std::uint32_t value) {
  return (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
}

constexpr std::array<std::uint32_t, 256> kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    table[i] = i;
    for (int bit = 0; bit < 8; ++bit) table[i] = times_x(table[i]);
  }
  return table;
}();

std::uint32_t by_table(std::uint32_t state, const std::byte* data, std::size_t n) {
  for (; n > 0; --n, ++data) state = (state >> 8) ^ kTable[(state ^ static_cast<std::uint32_t>(*data)) & 0xff];
  return state;
}

#if defined(__x86_64__)
[[gnu::target("sse4.2")]] std::uint32_t by_words(std::uint32_t state, const std::byte* data, std::size_t n) {
  std::uint64_t wide = state;
  for (; n >= sizeof wide; n -= sizeof wide, data += sizeof wide) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, sizeof word);
    wide = _mm_crc32_u64(wide, word);
  }
  state = static_cast<std::uint32_t>(wide);
  for (; n > 0; --n, ++data) state = _mm_crc32_u8(state, static_cast<std::uint8_t>(*data));
  return state;
}

// x^n modulo the polynomial, as a factor: the product of two reflected values is one bit too low.
constexpr long long factor(unsigned n) {
  std::uint32_t power = 1U << 31;
  for (unsigned i = 0; i < n; ++i) power = times_x(power);
  return static_cast<long long>(static_cast<std::uint64_t>(power) << 1);
}

#define TUTTI_FOLDS [[gnu::target("avx512f,avx512vl,pclmul,vpclmulqdq,sse4.2")]]

// The four 128-bit values, each moved `factors` bits forward in the message, plus `next`.
TUTTI_FOLDS inline __m512i fold(__m512i value, __m512i factors, __m512i next) {
  constexpr int kSum = 0x96;  // of three
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(value, factors, 0x00),
                                   _mm512_clmulepi64_epi128(value, factors, 0x11), next, kSum);
}
// For fold() by this many bits.
template <unsigned bits>
TUTTI_FOLDS inline __m512i factors_of() {
  constexpr long long low = factor(bits + 32);
  constexpr long long high = factor(bits - 32);
  return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}

TUTTI_FOLDS std::uint32_t by_folding(std::uint32_t state, const std::byte* data, std::size_t n) {
  constexpr std::size_t kVector = sizeof(__m512i);
  constexpr std::size_t kBlock = 4 * kVector;
  if (n < 2 * kBlock) return by_words(state, data, n);
  __m512i sums[4];
  for (std::size_t i = 0; i < 4; ++i) sums[i] = _mm512_loadu_si512(data + i * kVector);
  sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  data += kBlock;
  n -= kBlock;
  const __m512i by_block = factors_of<8 * kBlock>();
  for (; n >= kBlock; n -= kBlock, data += kBlock) {
    for (std::size_t i = 0; i < 4; ++i) sums[i] = fold(sums[i], by_block, _mm512_loadu_si512(data + i * kVector));
  }
  const __m512i by_vector = factors_of<8 * kVector>();
  __m512i sum = sums[0];
  for (std::size_t i = 1; i < 4; ++i) sum = fold(sum, by_vector, sums[i]);
  alignas(kVector) std::array<std::byte, kVector> folded;
  _mm512_store_si512(folded.data(), sum);
  return by_words(by_words(0, folded.data(), folded.size()), data, n);
}

bool has_words() {
  return __builtin_cpu_supports("sse4.2") != 0;
}
bool has_folding() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0;
}
#elif defined(__aarch64__)
[[gnu::target("+crc")]] std::uint32_t by_words(std::uint32_t state, const std::byte* data, std::size_t n) {
  for (; n >= sizeof(std::uint64_t); n -= sizeof(std::uint64_t), data += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, sizeof word);
    state = __crc32cd(state, word);
  }
  for (; n > 0; --n, ++data) state = __crc32cb(state, static_cast<std::uint8_t>(*data));
  return state;
}
bool has_words() {
  return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
#endif

struct Runnable {
  std::array<Crc32c, 3> all{};
  std::size_t count = 0;
  void add(const char* name, decltype(Crc32c::extend) extend) { all[count++] = {name, extend}; }
};

Runnable find_runnable() {
  Runnable runnable;
#if defined(__x86_64__)
  if (has_folding() && has_words()) runnable.add("folding", by_folding);
#endif
#if defined(__x86_64__) || defined(__aarch64__)
  if (has_words()) runnable.add("words", by_words);
#endif
  runnable.add("table", by_table);
  return runnable;
}

const Runnable kRunnable = find_runnable();

}  // namespace

std::span<const Crc32c> runnable_crc32c() {
  return {kRunnable.all.data(), kRunnable.count};
}

std::uint32_t crc32c(const std::byte* data, std::size_t n, std::uint32_t before) {
  return ~kRunnable.all[0].extend(~before, data, n);
}

}  // namespace tutti::internal::transport::checked
