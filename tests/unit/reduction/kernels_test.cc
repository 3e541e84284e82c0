// Every SIMD target that this processor supports, compared with the scalar reference: all datatypes and operators, all
// lengths to 1000, all misalignments, in place and not, with ordinary and with streaming stores.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/copy.h"
#include "catch_compat.h"
#include "reduction/element.h"
#include "reduction/reduction.h"
#include "reduction/targets.h"
#include "reference/reduction.h"
#include "sanitizers.h"

namespace tutti::internal::reduction {
namespace {

constexpr std::size_t kMaxBytes = 5003 * 16;
constexpr std::size_t kGuardBytes = 128;
constexpr std::byte kGuard{0xa5};

std::vector<DataType> all_types() {
  std::vector<DataType> types;
  for (int t = 0; t < kDataTypes; ++t) types.push_back(static_cast<DataType>(t));
  return types;
}
std::vector<ReduceOp> ops_of(DataType type) {
  std::vector<ReduceOp> ops;
  for (int op = 0; op < kReduceOps; ++op) {
    if (supports(type, static_cast<ReduceOp>(op))) ops.push_back(static_cast<ReduceOp>(op));
  }
  return ops;
}

// For a complex type the type of its parts; for all others the type itself.
DataType part_of(DataType type) {
  if (type == DataType::kComplex64) return DataType::kFloat32;
  return type == DataType::kComplex128 ? DataType::kFloat64 : type;
}

// The bits that all infinities and NaNs of the type have set; for E4M3, which has one NaN, those of most large numbers.
std::uint64_t exponent_bits(DataType type) {
  switch (type) {
    case DataType::kFloat32: return 0x7f800000;
    case DataType::kFloat64: return 0x7ff0000000000000;
    case DataType::kFloat16: return 0x7c00;
    case DataType::kBfloat16: return 0x7f80;
    case DataType::kFloat8E4M3: return 0x7e;
    case DataType::kFloat8E5M2: return 0x7c;
    default: return 0;
  }
}

bool same(const std::byte* x, const std::byte* y, std::size_t bytes) {
  return bytes == 0 || std::memcmp(x, y, bytes) == 0;
}

// Every second element has random bits (so all kinds of values, special ones too in the small formats); the
// others are ordinary numbers, and some of the wider floats' special values. Many are NaNs, quiet and signalling, of
// either sign, with all kinds of payloads, so that pairs of different NaNs are among the operands.
std::vector<std::byte> sample(DataType whole, std::size_t bytes, unsigned seed) {
  const DataType type = part_of(whole);
  std::mt19937_64 random(seed);
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i + 8 <= bytes; i += 8) store_element<std::uint64_t>(data.data() + i, random());
  const double specials[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-310, -1e-40, 1e38, 1e308, 1.0};
  std::normal_distribution<double> normal;
  const std::size_t size = size_of(type);
  for (std::size_t i = 0; i < bytes; i += 2 * size) {
    const double value = random() % 4 == 0 ? specials[random() % std::size(specials)] : normal(random);
    if (type == DataType::kFloat32) store_element<float>(&data[i], static_cast<float>(value));
    if (type == DataType::kFloat64) store_element<double>(&data[i], value);
    if (type == DataType::kFloat16) store_element<std::uint16_t>(&data[i], float_to_half(static_cast<float>(value)));
    // For the logical operators.
    if (!is_float(type) && random() % 3 == 0) std::memset(&data[i], 0, size);
  }
  for (std::size_t i = 0; i < bytes; i += size) {
    if (random() % 4 != 0) continue;
    std::uint64_t bits = 0;
    std::memcpy(&bits, &data[i], size);
    bits |= exponent_bits(type);
    std::memcpy(&data[i], &bits, size);
  }
  return data;
}

// Two operands and their correct combination; and guarded memory in which to combine parts of them.
struct Bench {
  DataType type;
  ReduceOp op;
  std::size_t size;
  std::vector<std::byte> a, b, expected;
  std::vector<std::byte> target_memory, also_memory, a_memory, b_memory;

  Bench(DataType t, ReduceOp o)
      : type(t),
        op(o),
        size(size_of(t)),
        a(sample(t, kMaxBytes, 1)),
        b(sample(t, kMaxBytes, 2)),
        expected(kMaxBytes),
        target_memory(kMaxBytes + 3 * kGuardBytes),
        also_memory(kMaxBytes + 3 * kGuardBytes),
        a_memory(kMaxBytes + 3 * kGuardBytes),
        b_memory(kMaxBytes + 3 * kGuardBytes) {
    combine_reference(type, op, expected.data(), a.data(), b.data(), kMaxBytes / size);
  }

  static std::byte* place(std::vector<std::byte>& memory, std::size_t misalignment) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    return memory.data() + kGuardBytes + (64 - address % 64) % 64 + misalignment;
  }

  [[nodiscard]] bool adds_or_multiplies() const { return op == ReduceOp::kSum || op == ReduceOp::kProd; }

  enum class Where { kApart, kInA, kInB };

  static bool guard_kept(const std::byte* from) {
    static const std::vector<std::byte> kept(64, kGuard);
    return std::memcmp(from, kept.data(), kept.size()) == 0;
  }

  // The second target has the address of the first modulo 64, or is a bit further.
  bool right_twice(CombineTwice combine, std::size_t count, std::size_t target_at, std::size_t a_at, std::size_t b_at,
                   Where where) {
    for (const std::size_t shift : {std::size_t{0}, size, std::size_t{3}}) {
      bool also_right = false;
      const auto both = [&](std::byte* target, const std::byte* x, const std::byte* y, std::size_t n) {
        std::byte* also = place(also_memory, (reinterpret_cast<std::uintptr_t>(target) + shift) % 64);
        std::memset(also - 64, static_cast<int>(kGuard), 64);
        std::memset(also + n * size, static_cast<int>(kGuard), 64);
        combine(target, also, x, y, n);
        also_right = (n == 0 || std::memcmp(also, target, n * size) == 0) && guard_kept(also - 64) &&
                     guard_kept(also + n * size);
      };
      if (!right(both, count, target_at, a_at, b_at, where) || !also_right) return false;
    }
    return true;
  }

  template <class F>
  bool right(const F& combine, std::size_t count, std::size_t target_at, std::size_t a_at, std::size_t b_at,
             Where where) {
    const std::size_t bytes = count * size;
    std::byte* x = place(a_memory, a_at);
    std::byte* y = place(b_memory, b_at);
    std::byte* target = where == Where::kApart ? place(target_memory, target_at) : where == Where::kInA ? x : y;
    std::memset(target - 64, static_cast<int>(kGuard), 64);
    std::memset(target + bytes, static_cast<int>(kGuard), 64);
    std::memcpy(x, a.data(), bytes);
    std::memcpy(y, b.data(), bytes);
    if (where == Where::kApart) std::memset(target, 0x3c, bytes);
    combine(target, x, y, count);
    const bool operands_kept = (where == Where::kInA || std::memcmp(x, a.data(), bytes) == 0) &&
                               (where == Where::kInB || std::memcmp(y, b.data(), bytes) == 0);
    return same(target, expected.data(), bytes) && guard_kept(target - 64) && guard_kept(target + bytes) &&
           operands_kept;
  }
};

// The release build tests all lengths and all misalignments. Under a sanitizer, which makes that ten times as slow, it
// is a sample. Sums and products take every length to 1 KiB, within which the loops of all kernels begin and end in
// every way, and then every seventh; of the misalignments the multiples of 8 and those just before them. The other
// operators go through the same loops (loops_inl.h) and touch the same memory.
std::size_t length_after(const Bench& bench, std::size_t count) {
  const bool each = !test::kAnySanitizer || (bench.adds_or_multiplies() && count * bench.size < 1024);
  return count + (each ? 1 : 7);
}
std::size_t misalignment_after(const Bench& bench, std::size_t at) {
  if (!test::kAnySanitizer) return at + 1;
  if (!bench.adds_or_multiplies()) return at + 13;
  return at + (at % 8 == 0 ? 7 : 1);
}

// All lengths with changing misalignments; then all misalignments with some lengths. Returns the first
// failing case, or nothing.
std::string first_failure(Bench& bench, const Kernels& kernels) {
  using Where = Bench::Where;
  const auto run = [&](std::size_t count, std::size_t t, std::size_t a, std::size_t b) -> std::string {
    for (const Where where : {Where::kApart, Where::kInA, Where::kInB}) {
      std::string wrong;
      if (!bench.right(kernels.combine, count, t, a, b, where)) wrong = "plain";
      if (!bench.right(kernels.combine_streaming, count, t, a, b, where)) wrong = "streaming";
      if (!bench.right_twice(kernels.combine_twice, count, t, a, b, where)) wrong = "twice";
      if (!bench.right_twice(kernels.combine_twice_streaming, count, t, a, b, where)) wrong = "twice, streaming";
      if (!wrong.empty()) {
        return wrong + ", count " + std::to_string(count) + " misaligned by " + std::to_string(t) + ", " +
               std::to_string(a) + ", " + std::to_string(b) + ", in place " + std::to_string(static_cast<int>(where));
      }
    }
    return "";
  };
  std::string failure;
  for (std::size_t count = 0; count <= 1000 && failure.empty(); count = length_after(bench, count)) {
    // Elements aligned to their size on even counts, anywhere on odd ones.
    const std::size_t step = count % 2 == 0 ? bench.size : 1;
    failure = run(count, count / 2 * step % 64, count / 2 * 5 * step % 64, count / 2 * 11 * step % 64);
  }
  for (std::size_t at = 0; at < 64 && failure.empty(); at = misalignment_after(bench, at)) {
    for (const std::size_t count : {std::size_t{19}, 2048 / bench.size - 1, 2048 / bench.size + 67 + at, 5003 - at}) {
      failure = run(count, at, at * 3 % 64, (at * 7 + 8) % 64);
      if (failure.empty()) failure = run(count, at, at, at);
      if (failure.empty()) failure = run(count, at, 0, 0);
    }
  }
  return failure;
}

TEST_CASE("kernels equal the reference on every SIMD target") {
  for (const std::int64_t target : runnable_targets()) {
    const Table table = make_table(target);
    for (const DataType type : all_types()) {
      for (const ReduceOp op : ops_of(type)) {
        INFO(target_name(target) << " " << name_of(type) << " " << name_of(op));
        Bench bench(type, op);
        CHECK(first_failure(bench, table.at(type, op)) == "");
      }
    }
  }
}

// Ranks combine in the same tree except for the order of the two operands: no bit may depend on it.
TEST_CASE("results do not depend on the order of the operands") {
  for (const std::int64_t target : runnable_targets()) {
    const Table table = make_table(target);
    for (const DataType type : all_types()) {
      for (const ReduceOp op : ops_of(type)) {
        INFO(target_name(target) << " " << name_of(type) << " " << name_of(op));
        const auto a = sample(type, kMaxBytes, 3), b = sample(type, kMaxBytes, 4);
        std::vector<std::byte> forward(kMaxBytes), backward(kMaxBytes);
        const Kernels& k = table.at(type, op);
        k.combine(forward.data(), a.data(), b.data(), kMaxBytes / size_of(type));
        k.combine(backward.data(), b.data(), a.data(), kMaxBytes / size_of(type));
        CHECK(forward == backward);
        combine_reference(type, op, backward.data(), b.data(), a.data(), kMaxBytes / size_of(type));
        CHECK(forward == backward);
      }
    }
  }
}

bool is_nan(DataType type, const std::byte* at) {
  switch (type) {
    case DataType::kFloat32: return std::isnan(load_element<float>(at));
    case DataType::kFloat64: return std::isnan(load_element<double>(at));
    case DataType::kFloat16: return std::isnan(half_to_float(load_element<std::uint16_t>(at)));
    case DataType::kBfloat16: return std::isnan(bfloat16_to_float(load_element<std::uint16_t>(at)));
    case DataType::kFloat8E4M3: return std::isnan(e4m3_to_float(load_element<std::uint8_t>(at)));
    case DataType::kFloat8E5M2: return std::isnan(e5m2_to_float(load_element<std::uint8_t>(at)));
    default: return false;
  }
}

TEST_CASE("every NaN that is combined or divided becomes that with all bits set") {
  for (const DataType type : all_types()) {
    if (!is_float(type)) continue;
    const std::size_t size = size_of(type), count = kMaxBytes / size;
    const std::uint64_t nan = ~std::uint64_t{0};
    const auto a = sample(type, kMaxBytes, 7), b = sample(type, kMaxBytes, 8);
    for (const ReduceOp op : ops_of(type)) {
      INFO(name_of(type) << " " << name_of(op));
      std::vector<std::byte> result(kMaxBytes), divided = a;
      const Kernels& k = kernels(type, op);
      k.combine(result.data(), a.data(), b.data(), count);
      if (k.finish != nullptr) k.finish(divided.data(), count, 3);
      std::size_t nans = 0, wrong = 0, missing = 0;
      for (std::size_t i = 0; i < kMaxBytes; i += size) {
        const bool from_nan = is_nan(type, &a[i]) || is_nan(type, &b[i]);
        missing += from_nan && !is_nan(type, &result[i]);
        if (is_nan(type, &result[i])) ++nans, wrong += std::memcmp(&result[i], &nan, size) != 0;
        if (k.finish != nullptr && is_nan(type, &a[i])) wrong += std::memcmp(&divided[i], &nan, size) != 0;
      }
      CHECK(nans > count / 32);
      CHECK(missing == 0);
      CHECK(wrong == 0);
    }
  }
}

// A complex NaN: either part may be one. Products mix the parts, so that infinities make NaNs as well.
TEST_CASE("every NaN in a complex number becomes that with all bits set") {
  for (const DataType type : {DataType::kComplex64, DataType::kComplex128}) {
    const DataType part = part_of(type);
    const std::size_t size = size_of(part), count = kMaxBytes / size_of(type);
    const std::uint64_t nan = ~std::uint64_t{0};
    const auto a = sample(type, kMaxBytes, 9), b = sample(type, kMaxBytes, 10);
    for (const ReduceOp op : ops_of(type)) {
      INFO(name_of(type) << " " << name_of(op));
      std::vector<std::byte> result(kMaxBytes);
      kernels(type, op).combine(result.data(), a.data(), b.data(), count);
      std::size_t nans = 0, wrong = 0;
      for (std::size_t i = 0; i < count * size_of(type); i += size) {
        if (is_nan(part, &result[i])) ++nans, wrong += std::memcmp(&result[i], &nan, size) != 0;
      }
      CHECK(nans > count / 32);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("unsupported combinations have no kernel") {
  for (const std::int64_t target : runnable_targets()) {
    const Table table = make_table(target);
    for (const DataType type : all_types()) {
      for (int op = 0; op < kReduceOps; ++op) {
        INFO(target_name(target) << " " << name_of(type) << " " << name_of(static_cast<ReduceOp>(op)));
        const Kernels& k = table.at(type, static_cast<ReduceOp>(op));
        const bool there = supports(type, static_cast<ReduceOp>(op));
        CHECK((k.combine != nullptr) == there);
        CHECK((k.combine_twice_streaming != nullptr) == there);
      }
    }
  }
}

TEST_CASE("all pairs of 8-bit elements") {
  constexpr std::size_t kPairs = 256 * 256;
  std::vector<std::byte> a(kPairs), b(kPairs), result(kPairs), expected(kPairs);
  for (std::size_t i = 0; i < kPairs; ++i) a[i] = static_cast<std::byte>(i / 256), b[i] = static_cast<std::byte>(i);
  for (const std::int64_t target : runnable_targets()) {
    const Table table = make_table(target);
    for (const DataType type : all_types()) {
      if (size_of(type) != 1) continue;
      for (const ReduceOp op : ops_of(type)) {
        INFO(target_name(target) << " " << name_of(type) << " " << name_of(op));
        table.at(type, op).combine(result.data(), a.data(), b.data(), kPairs);
        combine_reference(type, op, expected.data(), a.data(), b.data(), kPairs);
        CHECK(same(result.data(), expected.data(), kPairs));
      }
    }
  }
}

TEST_CASE("all 16-bit floats with chosen partners") {
  constexpr std::size_t kCodes = 65536;
  std::vector<std::byte> a(2 * kCodes), b(2 * kCodes), result(2 * kCodes), expected(2 * kCodes);
  for (std::size_t i = 0; i < kCodes; ++i) store_element(&a[2 * i], static_cast<std::uint16_t>(i));
  for (const std::int64_t target : runnable_targets()) {
    const Table table = make_table(target);
    for (const DataType type : {DataType::kFloat16, DataType::kBfloat16}) {
      for (const int partner : {0x0000, 0x8000, 0x0001, 0x3c00, 0x3f80, 0x3555, 0x7bff, 0x7c00, 0xff80}) {
        for (std::size_t i = 0; i < kCodes; ++i) store_element(&b[2 * i], static_cast<std::uint16_t>(partner));
        for (const ReduceOp op : ops_of(type)) {
          INFO(target_name(target) << " " << name_of(type) << " " << name_of(op) << " with " << partner);
          table.at(type, op).combine(result.data(), a.data(), b.data(), kCodes);
          combine_reference(type, op, expected.data(), a.data(), b.data(), kCodes);
          CHECK(same(result.data(), expected.data(), 2 * kCodes));
        }
      }
    }
  }
}

TEST_CASE("finish equals the reference on every SIMD target") {
  const std::size_t divisors[] = {1, 2, 3, 7, 64, 100, 255, 256, 1000, 65521, (std::size_t{1} << 32) + 1};
  for (const std::int64_t target : runnable_targets()) {
    const Table table = make_table(target);
    for (const DataType type : all_types()) {
      INFO(target_name(target) << " " << name_of(type));
      for (const ReduceOp op : ops_of(type)) {
        CHECK((table.at(type, op).finish != nullptr) == (op == ReduceOp::kAvg));
      }
      if (!supports(type, ReduceOp::kAvg)) continue;
      const auto data = sample(type, 8192, 5);
      std::string failure;
      for (const std::size_t divisor : divisors) {
        auto expected = data;
        finish_reference(type, expected.data(), data.size() / size_of(type), divisor);
        for (std::size_t count = 0; count <= 300; ++count) {
          std::vector<std::byte> memory(64 + 8192, kGuard);
          std::byte* at = memory.data() + count % 64;
          const std::size_t bytes = count * size_of(type);
          std::memcpy(at, data.data(), bytes);
          table.at(type, ReduceOp::kAvg).finish(at, count, divisor);
          if (!same(at, expected.data(), bytes) || at[bytes] != kGuard) {
            failure = std::to_string(count) + " elements by " + std::to_string(divisor);
          }
        }
      }
      CHECK(failure == "");
    }
  }
}

TEST_CASE("copies") {
  const auto data = sample(DataType::kUint8, 1 << 16, 6);
  std::vector<std::byte> memory((1 << 16) + 256);
  auto copies = streaming_copies();
  copies.push_back(&copy_bytes);
  copies.push_back(&copy_streaming);
  for (const auto copy : copies) {
    std::string failure;
    for (std::size_t i = 0; i < 1500; ++i) {
      const std::size_t bytes = i < 1400 ? i : 32768 - 64 + i % 100, from = i * 7 % 64, to = 64 + i % 64;
      std::fill(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(to + bytes + 64), kGuard);
      copy(memory.data() + to, data.data() + from, bytes);
      if (std::memcmp(memory.data() + to, data.data() + from, bytes) != 0 || memory[to - 1] != kGuard ||
          memory[to + bytes] != kGuard) {
        failure = std::to_string(bytes) + " bytes to " + std::to_string(to);
      }
    }
    CHECK(failure == "");
  }
}

TEST_CASE("the table of the best target is complete, and the same for all threads") {
  CHECK(std::string(simd_target()) == target_name(runnable_targets().front()));
  const Table best = make_table(runnable_targets().front());
  std::vector<const Kernels*> seen(4);
  std::vector<std::thread> threads;
  for (auto& slot : seen) {
    threads.emplace_back([&slot] { slot = &kernels(DataType::kFloat32, ReduceOp::kSum); });
  }
  for (auto& thread : threads) thread.join();
  CHECK(std::set<const Kernels*>(seen.begin(), seen.end()).size() == 1);
  for (const DataType type : all_types()) {
    for (const ReduceOp op : ops_of(type)) {
      const Kernels& k = kernels(type, op);
      CHECK(k.combine == best.at(type, op).combine);
      CHECK(k.combine != nullptr);
      CHECK(k.combine_streaming != nullptr);
      CHECK(k.combine_twice != nullptr);
      CHECK(k.combine_twice_streaming != nullptr);
      CHECK((k.finish != nullptr) == (op == ReduceOp::kAvg));
    }
  }
}

}  // namespace
}  // namespace tutti::internal::reduction
