#include "expected.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "numbers.h"
#include "skew.h"

namespace tutti::internal::perf {
namespace {

// Bijective mixing of 64 bits (the finalizer of SplitMix64: Steele, Lea, Flood, OOPSLA 2014, figure 16).
std::uint64_t mix(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

std::uint64_t random_bits(const Problem& problem, int rank, std::size_t index) {
  return mix(mix(problem.seed * 1'000'003 + static_cast<std::uint64_t>(rank)) + index);
}

// The place of `rank` in this index's rotation of the ranks: 0 .. ranks-1.
int place_of(const Problem& problem, int rank, std::size_t index) {
  const std::uint64_t turn = mix(problem.seed ^ (index * 2 + 1)) % static_cast<std::uint64_t>(problem.ranks);
  return (rank + static_cast<int>(turn)) % problem.ranks;
}

// At most `limit` in sum of magnitudes over the ranks.
double summand(const Problem& problem, int rank, std::size_t index, std::int64_t limit) {
  if (place_of(problem, rank, index) >= limit) return 0;
  const std::int64_t most = std::max<std::int64_t>(1, limit / problem.ranks);
  const std::uint64_t span = static_cast<std::uint64_t>(2 * most + 1);
  return static_cast<double>(static_cast<std::int64_t>(random_bits(problem, rank, index) % span) - most);
}

double factor(const Problem& problem, int rank, std::size_t index, const FloatFormat& format) {
  const std::uint64_t bits = random_bits(problem, rank, index);
  const double sign = (bits & 1) != 0 ? -1.0 : 1.0;
  const int place = place_of(problem, rank, index);
  // One below the range's ends: 1.5 * 2^window must be finite and its inverse exact.
  const int window = std::min(format.max_exponent(), -format.min_exponent()) - 1;
  if (place >= window) return sign;
  const double power = std::ldexp(sign, static_cast<int>(bits >> 1 & 3) % 3 - 1);
  return place == 0 ? 1.5 * power : power;
}

double finite_number(DataType type, std::uint64_t bits) {
  const double value = decode(type, bits);
  // Infinities and NaNs are replaced by a number that depends on the same bits.
  return std::isfinite(value) ? value : std::ldexp(static_cast<double>(bits & 3) - 1.5, 1);
}

// An imaginary number or a real one: products of these are exact.
std::uint64_t complex_factor_bits(const Problem& problem, int rank, std::size_t index, std::size_t part) {
  const DataType type = part_of(problem.datatype);
  const bool here = (random_bits(problem, rank, index) >> 3 & 1) == part;
  return here ? encode(type, factor(problem, rank, index, float_format(type))) : 0;
}

// Of part `part` of the element.
std::uint64_t value_bits(const Problem& problem, int rank, std::size_t index, std::size_t part = 0) {
  if (is_complex(problem.datatype)) {
    if (problem.subject.reduces() && problem.op == ReduceOp::kProd)
      return complex_factor_bits(problem, rank, index, part);
    index = 2 * index + part;
  }
  const DataType type = part_of(problem.datatype);
  const std::uint64_t bits = random_bits(problem, rank, index);
  const int width = static_cast<int>(8 * size_of(type));
  const std::uint64_t narrowed = width == 64 ? bits : bits & ((std::uint64_t{1} << width) - 1);
  if (!is_float(type)) {
    const bool logical = problem.subject.reduces() && (type == DataType::kBool || is_logical(problem.op));
    return logical && (mix(bits) & 1) != 0 ? 0 : narrowed;
  }
  const FloatFormat format = float_format(type);
  const bool reducing = problem.subject.reduces();
  if (reducing && (problem.op == ReduceOp::kSum || problem.op == ReduceOp::kAvg)) {
    return encode(type, summand(problem, rank, index, std::int64_t{1} << format.significand_bits()));
  }
  if (reducing && problem.op == ReduceOp::kProd) return encode(type, factor(problem, rank, index, format));
  return encode(type, finite_number(type, narrowed));
}

double combine(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kProd: return a * b;
    case ReduceOp::kMax: return std::max(a, b);
    case ReduceOp::kMin: return std::min(a, b);
    default: return a + b;
  }
}

std::uint64_t combine_truths(ReduceOp op, bool a, bool b) {
  switch (op) {
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kBand:
    case ReduceOp::kLand: return a && b ? 1 : 0;
    case ReduceOp::kBxor:
    case ReduceOp::kLxor: return a != b ? 1 : 0;
    default: return a || b ? 1 : 0;
  }
}

std::uint64_t combine(DataType type, ReduceOp op, std::uint64_t a, std::uint64_t b) {
  if (type == DataType::kBool || is_logical(op)) return combine_truths(op, a != 0, b != 0);
  const bool less = is_signed_integer(type) ? as_signed(type, a) < as_signed(type, b) : a < b;
  switch (op) {
    case ReduceOp::kProd: return a * b;
    case ReduceOp::kMax: return less ? b : a;
    case ReduceOp::kMin: return less ? a : b;
    case ReduceOp::kBand: return a & b;
    case ReduceOp::kBor: return a | b;
    case ReduceOp::kBxor: return a ^ b;
    default: return a + b;
  }
}

std::uint64_t complex_product(const Problem& problem, int ranks, std::size_t index, std::size_t part) {
  const DataType type = part_of(problem.datatype);
  double re = 1, im = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const double c = decode(type, value_bits(problem, rank, index, 0));
    const double d = decode(type, value_bits(problem, rank, index, 1));
    const double real = re * c - im * d;
    im = re * d + im * c;
    re = real;
  }
  return encode(type, part == 0 ? re : im);
}

std::uint64_t reduced_float(const Problem& problem, int ranks, std::size_t index, std::size_t part) {
  const DataType type = part_of(problem.datatype);
  double total = decode(type, value_bits(problem, 0, index, part));
  for (int rank = 1; rank < ranks; ++rank) {
    total = combine(problem.op, total, decode(type, value_bits(problem, rank, index, part)));
  }
  return encode(type, problem.op == ReduceOp::kAvg ? total / ranks : total);
}

std::uint64_t reduced_integer(const Problem& problem, int ranks, std::size_t index) {
  const DataType type = problem.datatype;
  const int width = static_cast<int>(8 * size_of(type));
  std::uint64_t total = value_bits(problem, 0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    total = combine(type, problem.op, total, value_bits(problem, rank, index));
  }
  if (width < 64) total &= (std::uint64_t{1} << width) - 1;
  if (problem.op != ReduceOp::kAvg) return total;
  if (!is_signed_integer(type)) return total / static_cast<std::uint64_t>(ranks);
  return static_cast<std::uint64_t>(as_signed(type, total) / ranks);
}

// One period of a stream of elements.
using Table = std::vector<std::byte>;

std::size_t period_of(const Problem& problem) {
  return problem.ranks > kMany ? kPeriodOfMany : kPeriod;
}

// element(i, p) gives the bits of part p of element i, for i < min(elements, the period).
template <class Element>
Table make_table(const Problem& problem, std::size_t elements, Element element) {
  const DataType type = part_of(problem.datatype);
  const std::size_t parts = size_of(problem.datatype) / size_of(type);
  const std::size_t rows = std::min(elements, period_of(problem));
  Table table(rows * size_of(problem.datatype));
  for (std::size_t i = 0; i < rows * parts; ++i) {
    store_bits(type, element(i / parts, i % parts), table.data() + i * size_of(type));
  }
  return table;
}

// From element `first` on what `rank` sends.
Table sent_table(const Problem& problem, int rank, std::size_t first, std::size_t elements) {
  return make_table(problem, elements, [&](std::size_t i, std::size_t part) {
    return value_bits(problem, rank, (first + i) % period_of(problem), part);
  });
}

// From element `first` on what the first `ranks` ranks send, combined. REQUIRES: ranks >= 1.
Table reduced_table(const Problem& problem, int ranks, std::size_t first, std::size_t elements) {
  return make_table(problem, elements, [&](std::size_t i, std::size_t part) {
    const std::size_t index = (first + i) % period_of(problem);
    if (is_complex(problem.datatype) && problem.op == ReduceOp::kProd)
      return complex_product(problem, ranks, index, part);
    const bool floats = is_float(part_of(problem.datatype));
    return floats ? reduced_float(problem, ranks, index, part) : reduced_integer(problem, ranks, index);
  });
}

bool part_is_right(const Problem& problem, const std::byte* got, const std::byte* wanted) {
  const DataType type = part_of(problem.datatype);
  const std::uint64_t got_bits = load_bits(type, got);
  const std::uint64_t wanted_bits = load_bits(type, wanted);
  if (got_bits == wanted_bits) return true;
  if (!is_float(type)) return false;
  const double got_value = decode(type, got_bits);
  const double wanted_value = decode(type, wanted_bits);
  if (got_value == wanted_value) return true;  // zeros of either sign
  if (!problem.subject.reduces() || problem.op != ReduceOp::kAvg) return false;
  const FloatFormat format = float_format(type);
  const double ulp = std::ldexp(std::fabs(wanted_value), -format.mantissa_bits);
  const double smallest = std::ldexp(1.0, format.min_exponent() - format.mantissa_bits);
  return std::fabs(got_value - wanted_value) <= std::max(ulp, smallest);
}

bool element_is_right(const Problem& problem, const std::byte* got, const std::byte* wanted) {
  const std::size_t width = size_of(part_of(problem.datatype));
  for (std::size_t at = 0; at < size_of(problem.datatype); at += width) {
    if (!part_is_right(problem, got + at, wanted + at)) return false;
  }
  return true;
}

std::size_t count_different(const Problem& problem, std::span<const std::byte> got, const Table& period) {
  const std::size_t width = size_of(problem.datatype);
  std::size_t wrong = 0;
  while (!got.empty()) {
    const std::size_t length = std::min(got.size(), period.size());
    if (std::memcmp(got.data(), period.data(), length) != 0) {
      for (std::size_t at = 0; at < length; at += width) {
        if (!element_is_right(problem, got.data() + at, period.data() + at)) ++wrong;
      }
    }
    got = got.subspan(length);
  }
  return wrong;
}

}  // namespace

std::vector<std::size_t> Problem::blocks(int rank) const {
  if (!subject.has_data()) return {0};
  if (!subject.has_blocks()) return {count};
  std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), count);
  if (!subject.varies()) return counts;
  skewed_counts(skew, ranks, vector_elements(), counts.data());
  if (subject == Collective::kAllToAllV) std::rotate(counts.begin(), counts.begin() + rank, counts.end());
  return counts;
}

std::size_t Problem::elements_before(int rank, int block) const {
  const std::vector<std::size_t> counts = blocks(rank);
  return std::accumulate(counts.begin(), counts.begin() + block, std::size_t{0});
}

std::size_t Problem::vector_elements() const {
  if (!subject.has_data()) return 0;
  return subject.has_blocks() ? count * static_cast<std::size_t>(ranks) : count;
}

std::size_t Problem::send_elements(int rank) const {
  return subject.gives_own_block() ? blocks(rank)[static_cast<std::size_t>(rank)] : vector_elements();
}

std::size_t Problem::recv_elements(int rank) const {
  return subject.gets_own_block() ? blocks(rank)[static_cast<std::size_t>(rank)] : vector_elements();
}

void fill_send(const Problem& problem, int rank, std::span<std::byte> send) {
  const Table period = sent_table(problem, rank, 0, problem.send_elements(rank));
  while (!send.empty()) {
    const std::size_t length = std::min(send.size(), period.size());
    std::memcpy(send.data(), period.data(), length);
    send = send.subspan(length);
  }
}

std::size_t count_changed(const Problem& problem, int rank, std::size_t first, std::span<const std::byte> part) {
  return count_different(problem, part, sent_table(problem, rank, first, part.size() / size_of(problem.datatype)));
}

std::size_t count_wrong(const Problem& problem, int rank, std::span<const std::byte> recv) {
  const std::size_t elements = problem.recv_elements(rank);
  if (problem.subject.transfers() != nullptr) {
    const int from = (rank + problem.ranks - 1) % problem.ranks;
    return count_different(problem, recv, sent_table(problem, from, 0, elements));
  }
  const Origin origin = info_of(*problem.subject.collective()).origin;
  const std::size_t first = problem.subject.gets_own_block() ? problem.elements_before(rank, rank) : 0;
  switch (origin) {
    case Origin::kRoot: return count_different(problem, recv, sent_table(problem, problem.root, first, elements));
    case Origin::kOwner:
    case Origin::kPeer: {
      std::size_t wrong = 0;
      int from = 0;
      for (const std::size_t block : problem.blocks(rank)) {
        const std::size_t bytes = block * size_of(problem.datatype);
        // Of the vector that an all-to-all takes, the part for this rank.
        const std::size_t begin = origin == Origin::kPeer ? problem.elements_before(from, rank) : 0;
        wrong += count_different(problem, recv.first(bytes), sent_table(problem, from++, begin, block));
        recv = recv.subspan(bytes);
      }
      return wrong;
    }
    case Origin::kPrefix: return count_different(problem, recv, reduced_table(problem, rank + 1, 0, elements));
    case Origin::kPrefixBefore: return count_different(problem, recv, reduced_table(problem, rank, 0, elements));
    case Origin::kAllCombined: break;
  }
  return count_different(problem, recv, reduced_table(problem, problem.ranks, first, elements));
}

}  // namespace tutti::internal::perf
