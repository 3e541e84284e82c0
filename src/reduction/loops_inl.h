// The loops around one vectorised operation, compiled once per SIMD target (included by every translation
// unit with kernels, for each target in turn). An operation V has
//   T                                   the element as it lies in memory,
//   Lane                                what a vector's lane holds: T, or a part of it,
//   one(T, T)                           one element,
//   apply(d, a, b)                      a vector of elements, d = Highway's tag of Lane, at least 16 bytes,
//   Tag                                 Highway's tag of the vectors to work with, 16 to 64 bytes,
//   kUnroll                             vectors per iteration,
//   kFromVectorOnly                     true where one() costs more than a whole vector.
// With `floats` the result depends on the thread's floating-point mode: then the loops run in the default one.
// All loops work in place (target == a or target == b): every element is loaded before its target is stored.
#if defined(TUTTI_REDUCTION_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCTION_LOOPS_INL_H_
#undef TUTTI_REDUCTION_LOOPS_INL_H_
#else
#define TUTTI_REDUCTION_LOOPS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "reduction/element.h"
#include "reduction/targets.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::internal::reduction::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

// Highway's scalar target has vectors of one element; there the compiler's own vectors do better.

template <class V, bool floats>
struct Loops {
  using T = typename V::T;

  static void combine(std::byte* target, const std::byte* a, const std::byte* b, std::size_t count) {
    if (leaves_default_mode<floats>()) [[unlikely]]
      return in_default_mode(&combine_in_default_mode, target, a, b, count);
    combine_in_default_mode(target, a, b, count);
  }
  static HWY_NOINLINE void combine_in_default_mode(std::byte* target, const std::byte* a, const std::byte* b,
                                                   std::size_t count) {
    for (std::size_t i = 0; i < count * sizeof(T); i += sizeof(T)) {
      store_element<T>(target + i, V::one(load_element<T>(a + i), load_element<T>(b + i)));
    }
  }
  static constexpr Combine combine_streaming = &combine;
  template <bool stream>
  static void combine_twice(std::byte* target, std::byte* also, const std::byte* a, const std::byte* b,
                            std::size_t count) {
    combine(target, a, b, count);
    if (count != 0) std::memcpy(also, target, count * sizeof(T));
  }
};

#else

template <class V, bool floats>
struct Loops {
  using T = typename V::T;
  using Lane = typename V::Lane;
  using D = typename V::Tag;
  using D16 = hn::CappedTag<Lane, 16 / sizeof(Lane)>;
  static constexpr std::size_t kVectorBytes = hn::MaxLanes(D()) * sizeof(Lane);
  static constexpr std::size_t kSmallVectorBytes = 16;
  static constexpr std::size_t kLineBytes = 64;
  static constexpr std::size_t kBlockBytes = V::kUnroll * kVectorBytes;
  // From this size on, aligning the target first pays: each misaligned store crosses a cache line.
  static constexpr std::size_t kAlignFromBytes = 2048;
  static_assert(kLineBytes % kVectorBytes == 0 && kAlignFromBytes >= 2 * kLineBytes);

  template <class Tag>
  static HWY_INLINE hn::Vec<Tag> load(Tag d, const std::byte* from) {
    return hn::LoadU(d, reinterpret_cast<const Lane*>(from));
  }
  template <class Tag>
  static HWY_INLINE hn::Vec<Tag> load_apply(Tag d, const std::byte* a, const std::byte* b) {
    return V::apply(d, load(d, a), load(d, b));
  }

  // Fewer elements than 16 bytes hold.
  static HWY_INLINE void combine_tiny(std::byte* target, const std::byte* a, const std::byte* b, std::size_t bytes) {
    if (V::kFromVectorOnly && bytes > 2 * sizeof(T)) {
      const D16 d;
      HWY_ALIGN std::byte x[kSmallVectorBytes] = {}, y[kSmallVectorBytes] = {};
      std::memcpy(x, a, bytes);
      std::memcpy(y, b, bytes);
      hn::StoreU(load_apply(d, x, y), d, reinterpret_cast<Lane*>(x));
      std::memcpy(target, x, bytes);
      return;
    }
    for (std::size_t i = 0; i < bytes; i += sizeof(T)) {
      store_element<T>(target + i, V::one(load_element<T>(a + i), load_element<T>(b + i)));
      asm volatile("");  // keeps the compiler from vectorising a loop that runs a few times
    }
  }

  // Whole vectors of tag d, then a last one that overlaps them and was computed before any store.
  // bytes >= size of d's vector.
  template <std::size_t vector_bytes, class Tag>
  static HWY_INLINE void combine_vectors(Tag d, std::byte* target, const std::byte* a, const std::byte* b,
                                         std::size_t done, std::size_t bytes) {
    auto last = hn::Zero(d);
    const bool ragged = (bytes - done) % vector_bytes != 0;
    if (ragged) last = load_apply(d, a + bytes - vector_bytes, b + bytes - vector_bytes);
    for (; done + vector_bytes <= bytes; done += vector_bytes) {
      hn::StoreU(load_apply(d, a + done, b + done), d, reinterpret_cast<Lane*>(target + done));
    }
    if (ragged) hn::StoreU(last, d, reinterpret_cast<Lane*>(target + bytes - vector_bytes));
  }

  // Fewer elements than a vector holds; also the way to an aligned target.
  static HWY_INLINE void combine_small(std::byte* target, const std::byte* a, const std::byte* b, std::size_t bytes) {
    if (bytes < kSmallVectorBytes) return combine_tiny(target, a, b, bytes);
    combine_vectors<kSmallVectorBytes>(D16(), target, a, b, 0, bytes);
  }

  static HWY_INLINE std::size_t bytes_to_line(const std::byte* target) {
    return (std::size_t{0} - reinterpret_cast<std::uintptr_t>(target)) % kLineBytes;
  }

  // Blocks of kUnroll vectors from `done` on; returns the end. `twice`: also writes to `also`.
  template <bool stream, bool twice = false>
  static HWY_INLINE std::size_t combine_blocks(std::byte* target, const std::byte* a, const std::byte* b,
                                               std::size_t done, std::size_t bytes, std::byte* also = nullptr) {
    const D d;
    const auto store = [&](hn::Vec<D> v, Lane* to) {
      store_one<stream>(v, to);
      if constexpr (twice)
        store_one<stream>(v, reinterpret_cast<Lane*>(also + (reinterpret_cast<std::byte*>(to) - target)));
    };
    for (; done + kBlockBytes <= bytes; done += kBlockBytes) {
      Lane* HWY_RESTRICT to = reinterpret_cast<Lane*>(target + done);
      const std::byte *x = a + done, *y = b + done;
      if constexpr (V::kUnroll == 4) {
        const auto v0 = load_apply(d, x, y);
        const auto v1 = load_apply(d, x + kVectorBytes, y + kVectorBytes);
        const auto v2 = load_apply(d, x + 2 * kVectorBytes, y + 2 * kVectorBytes);
        const auto v3 = load_apply(d, x + 3 * kVectorBytes, y + 3 * kVectorBytes);
        store(v0, to);
        store(v1, to + hn::Lanes(d));
        store(v2, to + 2 * hn::Lanes(d));
        store(v3, to + 3 * hn::Lanes(d));
      } else {
        static_assert(V::kUnroll == 1);
        store(load_apply(d, x, y), to);
      }
    }
    return done;
  }
  template <bool stream>
  static HWY_INLINE void store_one(hn::Vec<D> v, Lane* to) {
    if constexpr (stream) {
      hn::Stream(v, D(), to);
    } else {
      hn::StoreU(v, D(), to);
    }
  }

  static void combine(std::byte* target, const std::byte* a, const std::byte* b, std::size_t count) {
    if (leaves_default_mode<floats>()) [[unlikely]]
      return in_default_mode(&combine_in_default_mode, target, a, b, count);
    combine_in_default_mode(target, a, b, count);
  }

  // Short messages call nothing, so that they need no frame; long ones go on elsewhere.
  static HWY_NOINLINE void combine_in_default_mode(std::byte* target, const std::byte* a, const std::byte* b,
                                                   std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    if (bytes < kVectorBytes) return combine_small(target, a, b, bytes);
    if (bytes >= kAlignFromBytes) return combine_long(target, a, b, bytes);
    combine_vectors<kVectorBytes>(D(), target, a, b, 0, bytes);
  }

  // REQUIRES: bytes >= kAlignFromBytes.
  static HWY_NOINLINE void combine_long(std::byte* target, const std::byte* a, const std::byte* b, std::size_t bytes) {
    const std::size_t head = bytes_to_line(target);
    if (head != 0 && head % sizeof(T) == 0) {
      combine_in_default_mode(target, a, b, head / sizeof(T));
      target += head, a += head, b += head, bytes -= head;
    }
    const std::size_t done = combine_blocks<false>(target, a, b, 0, bytes);
    combine_in_default_mode(target + done, a + done, b + done, (bytes - done) / sizeof(T));
  }

  static void combine_streaming(std::byte* target, const std::byte* a, const std::byte* b, std::size_t count) {
    if (leaves_default_mode<floats>()) [[unlikely]]
      return in_default_mode(&combine_streaming, target, a, b, count);
    const std::size_t bytes = count * sizeof(T);
    const std::size_t head = bytes_to_line(target);
    // If the target is not a multiple of the element size, no element is aligned to a line; then ordinary stores are
    // used.
    if (bytes < kAlignFromBytes || head % sizeof(T) != 0) return combine(target, a, b, count);
    combine_in_default_mode(target, a, b, head / sizeof(T));
    const std::size_t done = combine_blocks<true>(target, a, b, head, bytes);
    hwy::FlushStream();
    combine(target + done, a + done, b + done, (bytes - done) / sizeof(T));
  }

  template <bool stream>
  static void combine_twice(std::byte* target, std::byte* also, const std::byte* a, const std::byte* b,
                            std::size_t count) {
    if (leaves_default_mode<floats>()) [[unlikely]]
      return in_default_mode(&combine_twice<stream>, target, also, a, b, count);
    const std::size_t bytes = count * sizeof(T);
    const std::size_t head = bytes_to_line(target);
    std::size_t done = 0;
    if (bytes >= kAlignFromBytes && head % sizeof(T) == 0 && bytes_to_line(also) == head) {
      combine_in_default_mode(target, a, b, head / sizeof(T));
      std::memcpy(also, target, head);
      done = combine_blocks<stream, true>(target, a, b, head, bytes, also);
      if constexpr (stream) hwy::FlushStream();
    }
    combine(target + done, a + done, b + done, (bytes - done) / sizeof(T));
    if (done < bytes) std::memcpy(also + done, target + done, bytes - done);
  }
};

#endif

// Enters the loops around V as the kernels of type and op.
template <DataType type, ReduceOp op, class V>
void put(Table& table) {
  constexpr bool kFloats = is_float(type) || is_complex(type);
  using Kernel = Loops<V, kFloats>;
  Kernels& k = table.at(type, op);
  k.combine = kFloats ? &Kernel::combine : &Kernel::combine_in_default_mode;
  k.combine_in_default_mode = &Kernel::combine_in_default_mode;
  k.combine_streaming = Kernel::combine_streaming;
  k.combine_twice = &Kernel::template combine_twice<false>;
  k.combine_twice_streaming = &Kernel::template combine_twice<true>;
}

}  // namespace tutti::internal::reduction::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
