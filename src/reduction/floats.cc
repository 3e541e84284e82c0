// Kernels of float32 and float64, and the streaming copy.
#include "reduction/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/floats.cc"
#include "hwy/foreach_target.h"
#include "reduction/float_operators_inl.h"
#include "reduction/loops_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::internal::reduction::HWY_NAMESPACE {

template <DataType type, ReduceOp op>
struct FloatOperation {
  using T = Storage<type>;
  using Lane = T;
  static constexpr std::size_t kUnroll = 4;
  static constexpr bool kFromVectorOnly = false;

  static HWY_INLINE T one(T a, T b) { return combine_element<type, op>(a, b); }

#if HWY_TARGET != HWY_SCALAR
  using Tag = hn::ScalableTag<T>;
  template <class D>
  static HWY_INLINE hn::Vec<D> apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
    return combine_float_vectors<op>(d, a, b);
  }
#endif
};

// The compiler vectorises this for the target.
template <DataType type>
void finish(std::byte* target, std::size_t count, std::size_t divisor) {
  using T = Storage<type>;
  const T by = static_cast<T>(divisor);
  for (std::size_t i = 0; i < count * sizeof(T); i += sizeof(T)) {
    store_element<T>(target + i, tutti::internal::reduction::with_one_nan(load_element<T>(target + i) / by));
  }
}

#if HWY_TARGET != HWY_SCALAR
void copy_streaming(std::byte* target, const std::byte* source, std::size_t bytes) {
  constexpr std::size_t kLineBytes = 64, kVectorBytes = HWY_LANES(std::uint8_t);
  constexpr std::size_t kVectorsPerBlock = 4, kBlockBytes = kVectorsPerBlock * kVectorBytes;
  const std::size_t head = (std::size_t{0} - reinterpret_cast<std::uintptr_t>(target)) % kLineBytes;
  if (bytes < head + kBlockBytes) {
    std::memcpy(target, source, bytes);
    return;
  }
  std::memcpy(target, source, head);
  const hn::ScalableTag<std::uint8_t> d;
  std::size_t done = head;
  for (; done + kBlockBytes <= bytes; done += kBlockBytes) {
    const auto* from = reinterpret_cast<const std::uint8_t*>(source + done);
    auto* to = reinterpret_cast<std::uint8_t*>(target + done);
    const auto v0 = hn::LoadU(d, from), v1 = hn::LoadU(d, from + kVectorBytes);
    const auto v2 = hn::LoadU(d, from + 2 * kVectorBytes), v3 = hn::LoadU(d, from + 3 * kVectorBytes);
    hn::Stream(v0, d, to);
    hn::Stream(v1, d, to + kVectorBytes);
    hn::Stream(v2, d, to + 2 * kVectorBytes);
    hn::Stream(v3, d, to + 3 * kVectorBytes);
  }
  hwy::FlushStream();
  std::memcpy(target + done, source + done, bytes - done);
}
#else
void copy_streaming(std::byte* target, const std::byte* source, std::size_t bytes) {
  std::memcpy(target, source, bytes);
}
#endif

template <DataType type>
void fill_type(Table& table) {
  put<type, ReduceOp::kSum, FloatOperation<type, ReduceOp::kSum>>(table);
  put<type, ReduceOp::kProd, FloatOperation<type, ReduceOp::kProd>>(table);
  put<type, ReduceOp::kMax, FloatOperation<type, ReduceOp::kMax>>(table);
  put<type, ReduceOp::kMin, FloatOperation<type, ReduceOp::kMin>>(table);
  put<type, ReduceOp::kAvg, FloatOperation<type, ReduceOp::kSum>>(table);
  table.at(type, ReduceOp::kAvg).finish = &finish<type>;
}

void fill_floats(Table& table) {
  fill_type<DataType::kFloat32>(table);
  fill_type<DataType::kFloat64>(table);
  table.copy_streaming = &copy_streaming;
}

}  // namespace tutti::internal::reduction::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::internal::reduction {

Fill float_filler(std::int64_t target) {
  switch (target) {
    case HWY_SSE4: return HWY_CHOOSE_SSE4(fill_floats);
    case HWY_AVX2: return HWY_CHOOSE_AVX2(fill_floats);
    case HWY_AVX3: return HWY_CHOOSE_AVX3(fill_floats);
    case HWY_NEON: return HWY_CHOOSE_NEON(fill_floats);
    default: return HWY_CHOOSE_FALLBACK(fill_floats);
  }
}

}  // namespace tutti::internal::reduction
#endif
