// Kernels give the same bits in every floating-point mode of their thread, and do not change the mode.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/service_thread.h"
#include "catch_compat.h"
#include "float_modes.h"
#include "reduction/element.h"
#include "reduction/reduction.h"
#include "reduction/targets.h"

namespace tutti::internal::reduction {
namespace {

constexpr std::size_t kBytes = 16 * 1024 + 16;

// Bits of all kinds, including many denormal numbers, and pairs whose sums and products must be rounded.
std::vector<std::byte> operand(DataType type, std::uint64_t seed) {
  std::vector<std::byte> data(kBytes);
  std::uint64_t state = seed;
  for (std::size_t i = 0; i + 8 <= data.size(); i += 8) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    std::uint64_t bits = state ^ state >> 29;
    if (i / 8 % 3 == 0) {
      // Small in each element, for every width.
      if (type == DataType::kFloat32 || type == DataType::kComplex64) bits &= 0x807fffff'807fffffU;
      if (type == DataType::kFloat64 || type == DataType::kComplex128) bits &= 0x800fffff'ffffffffU;
      if (type == DataType::kFloat16) bits &= 0x83ff'83ff'83ff'83ffU;
      if (type == DataType::kBfloat16) bits &= 0x807f'807f'807f'807fU;
    }
    store_element<std::uint64_t>(&data[i], bits);
  }
  return data;
}

using Bytes = std::vector<std::byte>;

// The results of all kernels of an operator for the operands, concatenated; with lengths that take different paths.
Bytes results(const Kernels& kernels, std::size_t size, const Bytes& a, const Bytes& b) {
  Bytes all;
  for (const std::size_t bytes : {std::size_t{16}, std::size_t{48}, std::size_t{1024}, kBytes}) {
    const std::size_t count = bytes / size;
    for (const Combine combine : {kernels.combine, kernels.combine_streaming}) {
      Bytes target(bytes);
      combine(target.data(), a.data(), b.data(), count);
      if (kernels.finish != nullptr) kernels.finish(target.data(), count, 3);
      all.insert(all.end(), target.begin(), target.end());
    }
    for (const CombineTwice combine : {kernels.combine_twice, kernels.combine_twice_streaming}) {
      Bytes target(bytes);
      Bytes also(bytes);
      combine(target.data(), also.data(), a.data(), b.data(), count);
      all.insert(all.end(), target.begin(), target.end());
      all.insert(all.end(), also.begin(), also.end());
    }
  }
  return all;
}

template <class F>
Bytes in_mode(const test::NamedMode& mode, F make) {
  test::set_mode(mode);
  const FloatMode before = FloatMode::current();
  Bytes made = make();
  const FloatMode after = FloatMode::current();
  test::set_default_mode();
  CHECK(before == after);
  CHECK_FALSE(before.is_default());
  return made;
}

TEST_CASE("kernels: every floating-point mode of the thread gives the bits of the default mode") {
  for (const std::int64_t target : runnable_targets()) {
    const Table table = make_table(target);
    for (int t = 0; t < kDataTypes; ++t) {
      const auto type = static_cast<DataType>(t);
      const Bytes a = operand(type, 1);
      const Bytes b = operand(type, 2);
      for (int o = 0; o < kReduceOps; ++o) {
        const auto op = static_cast<ReduceOp>(o);
        if (!supports(type, op)) continue;
        const auto make = [&] { return results(table.at(type, op), size_of(type), a, b); };
        const Bytes expected = make();
        for (const auto& mode : test::kModes) {
          const bool same = in_mode(mode, make) == expected;
          INFO(target_name(target) << " " << name_of(type) << " " << name_of(op) << ": " << mode.name);
          CHECK(same);
        }
      }
    }
  }
}

TEST_CASE("scale: every floating-point mode of the thread gives the bits of the default mode") {
  for (int t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    if (!supports(type, ReduceOp::kPreMulSum)) continue;
    const Bytes a = operand(type, 3);
    const Bytes factor = operand(type, 5);
    const auto make = [&] {
      Bytes target(kBytes);
      scale(type, target.data(), a.data(), factor.data() + 8, kBytes / size_of(type));
      return target;
    };
    const Bytes expected = make();
    for (const auto& mode : test::kModes) {
      const bool same = in_mode(mode, make) == expected;
      INFO(name_of(type) << ": " << mode.name);
      CHECK(same);
    }
  }
}

TEST_CASE("service threads: the default floating-point mode, whatever the mode of the thread that starts them") {
  for (const auto& mode : test::kModes) {
    FloatMode found;
    test::set_mode(mode);
    const FloatMode before = FloatMode::current();
    ServiceThread thread;
    const Status started = thread.start([&] { found = FloatMode::current(); });
    thread.join();
    const FloatMode after = FloatMode::current();
    test::set_default_mode();
    INFO(mode.name);
    CHECK(started.is_ok());
    CHECK(found.is_default());
    CHECK(before == after);
  }
}

}  // namespace
}  // namespace tutti::internal::reduction
