#include "values.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>

#include "reduction/small_float.h"
#include "reference/reduction.h"

namespace tutti::internal::test {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014): well-mixed bits from a counter.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Sums of up to 33 values of at most this magnitude are exact; the 8-bit floats count only a few ranks.
int largest_term(DataType type) {
  switch (type) {
    case DataType::kFloat8E4M3:
    case DataType::kFloat8E5M2: return 1;
    case DataType::kBfloat16: return 7;
    case DataType::kFloat16: return 31;
    default: return 100'000;
  }
}

// The number of ranks whose contribution to element i is not the neutral element.
int active_ranks(DataType type, ReduceOp op) {
  if (op == ReduceOp::kProd) return 4;
  return size_of(type) == 1 ? 8 : 1'000'000;
}

// For a complex type the type of its parts; for all others the type itself.
DataType part_of(DataType type) {
  if (type == DataType::kComplex64) return DataType::kFloat32;
  return type == DataType::kComplex128 ? DataType::kFloat64 : type;
}

double float_value(DataType type, ReduceOp op, int ranks, int rank, std::size_t i, std::uint64_t random) {
  const bool active = (rank + static_cast<int>(i)) % ranks < active_ranks(type, op);
  const int limit = largest_term(type);
  if (op == ReduceOp::kProd) {
    const double magnitude = !active ? 1.0 : (random & 1) != 0 ? 2.0 : 0.5;
    return (random & 2) != 0 ? -magnitude : magnitude;
  }
  if (op == ReduceOp::kMax || op == ReduceOp::kMin) return static_cast<double>(random % 15) - 7.0;
  if (!active) return 0.0;
  return static_cast<double>(static_cast<std::int64_t>(random % static_cast<std::uint64_t>(2 * limit + 1)) - limit);
}

template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

void store_float(DataType type, std::byte* at, double value) {
  const auto single = static_cast<float>(value);
  switch (type) {
    case DataType::kFloat16: return store(at, reduction::float_to_half(single));
    case DataType::kBfloat16: return store(at, reduction::float_to_bfloat16(single));
    case DataType::kFloat8E4M3: return store(at, reduction::float_to_e4m3(single));
    case DataType::kFloat8E5M2: return store(at, reduction::float_to_e5m2(single));
    case DataType::kFloat32: return store(at, single);
    default: return store(at, value);
  }
}

int mantissa_bits(DataType type) {
  switch (type) {
    case DataType::kFloat16: return 10;
    case DataType::kBfloat16: return 7;
    case DataType::kFloat8E4M3: return 3;
    case DataType::kFloat8E5M2: return 2;
    case DataType::kFloat32: return 23;
    default: return 52;
  }
}

// Factors are 1, or 2 + i times a power of two: products of a few are exact, and no part of one is 0, whose sign would
// depend on the order in which they are combined.
void store_complex(DataType type, ReduceOp op, int ranks, int rank, std::size_t i, std::uint64_t random,
                   std::byte* at) {
  const DataType part = part_of(type);
  double re = float_value(part, op, ranks, rank, i, random);
  double im = float_value(part, op, ranks, rank, i, mix(random));
  if (op == ReduceOp::kProd) {
    const bool active = re != 1.0 && re != -1.0;
    im = active ? re : 0.0;
    re = active ? 2 * re : 1.0;
  }
  store_float(part, at, re);
  store_float(part, at + size_of(part), im);
}

std::shared_ptr<const Pattern> make_input(DataType type, ReduceOp op, int ranks, int rank) {
  const std::size_t size = size_of(type);
  auto pattern = std::make_shared<Pattern>(kPeriod * size);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    const std::uint64_t random =
        mix(static_cast<std::uint64_t>(rank) * 1'000'003 + i * 31 + static_cast<std::uint64_t>(op));
    std::byte* at = pattern->data() + i * size;
    if (is_float(type)) {
      store_float(type, at, float_value(type, op, ranks, rank, i, random));
    } else if (is_complex(type)) {
      store_complex(type, op, ranks, rank, i, random, at);
    } else {
      // Zeros often, for the logical operators: with many ranks the result would otherwise always be true.
      const bool zero = is_logical(op) || type == DataType::kBool ? (random >> 32) % 4 != 0 : false;
      const std::uint64_t value = zero ? 0 : random;
      std::memcpy(at, &value, size);
    }
  }
  return pattern;
}

std::shared_ptr<const Pattern> make_combined(DataType type, ReduceOp op, int ranks, int combined) {
  auto all = std::make_shared<Pattern>(*input_pattern(type, op, ranks, 0));
  for (int r = 1; r < combined; ++r) {
    const auto next = input_pattern(type, op, ranks, r);
    reduction::combine_reference(type, op, all->data(), all->data(), next->data(), kPeriod);
  }
  if (op == ReduceOp::kAvg) reduction::finish_reference(type, all->data(), kPeriod, static_cast<std::size_t>(ranks));
  return all;
}

using Key = std::tuple<DataType, ReduceOp, int, int>;

template <class Make>
std::shared_ptr<const Pattern> cached(const Key& key, Make make) {
  static std::mutex mutex;
  static std::map<Key, std::shared_ptr<const Pattern>> cache;
  {
    const std::lock_guard lock(mutex);
    if (const auto found = cache.find(key); found != cache.end()) return found->second;
  }
  auto made = make();
  const std::lock_guard lock(mutex);
  return cache.emplace(key, std::move(made)).first->second;
}

}  // namespace

std::shared_ptr<const Pattern> input_pattern(DataType type, ReduceOp op, int ranks, int rank) {
  return cached({type, op, ranks, rank}, [&] { return make_input(type, op, ranks, rank); });
}

std::shared_ptr<const Pattern> combined_pattern(DataType type, ReduceOp op, int ranks, int combined) {
  return cached({type, op, ranks, -combined}, [&] { return make_combined(type, op, ranks, combined); });
}

void fill_with_any_bits(std::byte* target, DataType type, std::size_t count, int rank) {
  if (is_complex(type)) return fill_with_any_bits(target, part_of(type), 2 * count, rank);
  const std::size_t size = size_of(type);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t random = mix(static_cast<std::uint64_t>(rank) * 1'000'003 + i);
    // The kind of an element, the same on all ranks for some, so that NaN meets NaN, zero meets zero, and numbers
    // numbers.
    const std::uint64_t kind = i % 2 == 0 ? i / 2 % 5 : random % 5;
    std::byte* const at = target + i * size;
    if (kind < 3) {
      store_float(type, at, 1.0 / static_cast<double>(1 + (random >> 8) % 10'007));
    } else if (kind == 3) {
      store_float(type, at, (random & 256) != 0 ? 0.0 : -0.0);
    } else {
      // Infinity has all bits of the exponent (E4M3 has none: there this is its NaN); any bits besides make a NaN.
      store_float(type, at, std::numeric_limits<double>::infinity());
      std::uint64_t bits = 0;
      std::memcpy(&bits, at, size);
      if (type == DataType::kFloat8E4M3) bits = 0x7f;
      if (type == DataType::kFloat8E5M2) bits = 0x7c;
      bits |= mix(random) & ((std::uint64_t{1} << mantissa_bits(type)) - 1);
      bits |= (random >> 9 & 1) << (8 * size - 1);
      std::memcpy(at, &bits, size);
    }
  }
}

void fill_periodic(std::byte* target, const Pattern& pattern, std::size_t first, std::size_t count) {
  const std::size_t size = pattern.size() / kPeriod;
  for (std::size_t i = 0; i < count;) {
    const std::size_t at = (first + i) % kPeriod;
    const std::size_t n = std::min(count - i, kPeriod - at);
    std::memcpy(target + i * size, pattern.data() + at * size, n * size);
    i += n;
  }
}

std::size_t find_difference(const std::byte* target, const Pattern& pattern, std::size_t first, std::size_t count) {
  const std::size_t size = pattern.size() / kPeriod;
  for (std::size_t i = 0; i < count;) {
    const std::size_t at = (first + i) % kPeriod;
    const std::size_t n = std::min(count - i, kPeriod - at);
    if (std::memcmp(target + i * size, pattern.data() + at * size, n * size) != 0) {
      while (std::memcmp(target + i * size, pattern.data() + (first + i) % kPeriod * size, size) == 0) ++i;
      return i;
    }
    i += n;
  }
  return count;
}

}  // namespace tutti::internal::test
