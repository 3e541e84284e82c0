// Micro-benchmark of the kernels: nanoseconds for tiny counts, GB/s (bytes read and written) for pieces in the caches
// and in memory. Only ratios within one run are meaningful. Optional argument: the name of a SIMD target instead of the
// best.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/copy.h"
#include "reduction/reduction.h"
#include "reduction/targets.h"

namespace tutti::internal::reduction {
namespace {

using Clock = std::chrono::steady_clock;

// Median over samples of the time of one call, in nanoseconds; about 20 ms in all.
template <class F>
double median_ns(F&& call) {
  const auto timed = [&](long calls) {
    const auto begin = Clock::now();
    for (long i = 0; i < calls; ++i) call();
    return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / static_cast<double>(calls);
  };
  const long calls = std::max(1L, static_cast<long>(2e6 / std::max(1.0, timed(10))));
  std::vector<double> samples;
  for (int i = 0; i < 11; ++i) samples.push_back(timed(calls));
  std::nth_element(samples.begin(), samples.begin() + 5, samples.end());
  return samples[5];
}

struct Buffers {
  std::vector<std::byte> target, a, b;
  explicit Buffers(std::size_t bytes) : target(bytes + 128), a(bytes + 128), b(bytes + 128) {
    // 0x3c is an ordinary value in every datatype, so that no subnormal slows the arithmetic down.
    for (auto* v : {&target, &a, &b}) std::fill(v->begin(), v->end(), std::byte{0x3c});
  }
};

void bench_types(const Table& table) {
  std::printf("%-9s %-5s %7s %7s %7s %7s %7s | %7s %7s %7s %7s\n", "type", "op", "1 ns", "2 ns", "15 ns", "64B ns",
              "256B ns", "4K GB/s", "32K", "1M", "1M strm");
  for (int t = 0; t < kDataTypes; ++t) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kBand, ReduceOp::kLand}) {
      const DataType type = static_cast<DataType>(t);
      if (!supports(type, op)) continue;
      const Kernels& k = table.at(type, op);
      Buffers m(1 << 20);
      const auto time_of = [&](Combine f, std::size_t count) {
        return median_ns([&] { f(m.target.data(), m.a.data(), m.b.data(), count); });
      };
      const auto rate_of = [&](Combine f, std::size_t bytes) {
        return 3 * static_cast<double>(bytes) / time_of(f, bytes / size_of(type));
      };
      std::printf("%-9s %-5s %7.1f %7.1f %7.1f %7.1f %7.1f | %7.1f %7.1f %7.1f %7.1f\n", name_of(type), name_of(op),
                  time_of(k.combine, 1), time_of(k.combine, 2), time_of(k.combine, 15),
                  time_of(k.combine, 64 / size_of(type)), time_of(k.combine, 256 / size_of(type)),
                  rate_of(k.combine, 4096), rate_of(k.combine, 32768), rate_of(k.combine, 1 << 20),
                  rate_of(k.combine_streaming, 1 << 20));
    }
  }
}

void bench_copies() {
  std::printf("\n%-10s %10s %10s   GB/s read and written\n", "bytes", "copy", "streaming");
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{1024}, std::size_t{4096}, std::size_t{32768},
                                  std::size_t{1} << 20, std::size_t{1} << 25}) {
    Buffers m(bytes);
    const auto rate_of = [&](auto f) {
      return 2 * static_cast<double>(bytes) / median_ns([&] { f(m.target.data(), m.a.data(), bytes); });
    };
    std::printf("%-10zu %10.1f %10.1f\n", bytes, rate_of(&copy_bytes), rate_of(&copy_streaming));
  }
}

void bench_large(const Table& table) {
  constexpr std::size_t kBytes = std::size_t{1} << 25;
  Buffers m(kBytes);
  const Kernels& k = table.at(DataType::kFloat32, ReduceOp::kSum);
  for (const Combine f : {k.combine, k.combine_streaming}) {
    const double ns = median_ns([&] { f(m.target.data(), m.a.data(), m.b.data(), kBytes / 4); });
    std::printf("float sum 32 MiB%s: %.1f GB/s\n", f == k.combine ? "" : " streaming", 3.0 * kBytes / ns);
  }
}

}  // namespace
}  // namespace tutti::internal::reduction

int main(int argc, char** argv) {
  using namespace tutti::internal::reduction;
  std::int64_t target = 0;
  for (const std::int64_t t : runnable_targets()) {
    if (target == 0 && (argc < 2 || std::strcmp(argv[1], target_name(t)) == 0)) target = t;
  }
  if (target == 0) {
    std::fprintf(stderr, "no SIMD target %s here\n", argv[1]);
    return 2;
  }
  const Table table = make_table(target);
  std::printf("%s\n", target_name(target));
  bench_types(table);
  bench_copies();
  bench_large(table);
  return 0;
}
