// Loops over elements in the memory of CUDA devices, by several threads together: 16 bytes at a time if the vectors
// have the same alignment, with several loads in flight in each thread. Only for nvcc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "reduction/device_element.h"

namespace tutti::internal::reduction {

// The threads that run a loop together, and the index of this one.
struct Crew {
  std::size_t index = 0;
  std::size_t size = 1;
};

inline constexpr std::size_t kPackBytes = 16;
// Packs of each operand that a thread loads before it uses the first.
inline constexpr int kPacksAtOnce = 4;

// Elements in registers, as they are loaded and stored at once: in words, so that the compiler uses no local memory.
template <class T>
struct alignas(kPackBytes) Pack {
  static constexpr int kWords = kPackBytes / sizeof(std::uint32_t);
  static constexpr int kElements = kPackBytes / sizeof(T);
  std::uint32_t words[kWords];

  // Each element f(element of a, element of b). Indices are constants after unrolling.
  template <class F>
  static __device__ Pack of(const Pack& a, const Pack& b, F&& f) {
    Pack result{};
#pragma unroll
    for (int e = 0; e < kElements; ++e) result.put(e, f(a.get(e), b.get(e)));
    return result;
  }

 private:
  __device__ T get(int e) const {
    T element;
    if constexpr (sizeof(T) < sizeof(std::uint32_t)) {
      constexpr int kPerWord = sizeof(std::uint32_t) / sizeof(T);
      element = static_cast<T>(words[e / kPerWord] >> (e % kPerWord * 8 * sizeof(T)));
    } else {
      std::memcpy(&element, &words[e * sizeof(T) / sizeof(std::uint32_t)], sizeof(T));
    }
    return element;
  }
  // REQUIRES: the element is 0.
  __device__ void put(int e, T element) {
    if constexpr (sizeof(T) < sizeof(std::uint32_t)) {
      constexpr int kPerWord = sizeof(std::uint32_t) / sizeof(T);
      const auto bits = static_cast<std::uint32_t>(static_cast<std::make_unsigned_t<T>>(element));
      words[e / kPerWord] |= bits << (e % kPerWord * 8 * sizeof(T));
    } else {
      std::memcpy(&words[e * sizeof(T) / sizeof(std::uint32_t)], &element, sizeof(T));
    }
  }
};

// out[o][i] = value(in(0)[i], in(1)[i], ...) for i < count and each o < outputs. `fold` is what makes the value:
//   using Element;  Element combine(Element so_far, Element next);  Element finish(Element);  and both of packs
// Inputs are combined in their order. Outputs may be inputs, at the same place; other overlap is not allowed.
// REQUIRES: every address is a multiple of sizeof(Element); inputs >= 1.
template <class Fold>
__device__ inline void produce(const Crew& crew, const Fold& fold, const std::byte* const* in, int inputs,
                               std::byte* const* out, int outputs, std::size_t count) {
  using T = typename Fold::Element;
  using P = Pack<T>;
  constexpr std::size_t kPerPack = kPackBytes / sizeof(T);
  const auto offset = [](const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at) % kPackBytes; };
  bool alike = true;
  for (int i = 1; i < inputs; ++i) alike = alike && offset(in[i]) == offset(in[0]);
  for (int o = 0; o < outputs; ++o) alike = alike && offset(out[o]) == offset(in[0]);
  std::size_t head = alike ? (kPackBytes - offset(in[0])) % kPackBytes / sizeof(T) : count;
  head = head < count ? head : count;
  const std::size_t packs = (count - head) / kPerPack;

  const auto one = [&](std::size_t i) {
    const auto load = [i](const std::byte* from) { return reinterpret_cast<const T*>(from)[i]; };
    T value = load(in[0]);
    for (int k = 1; k < inputs; ++k) value = fold.combine(value, load(in[k]));
    value = fold.finish(value);
    for (int o = 0; o < outputs; ++o) reinterpret_cast<T*>(out[o])[i] = value;
  };
#pragma unroll 4
  for (std::size_t i = crew.index; i < head; i += crew.size) one(i);
  for (std::size_t i = head + packs * kPerPack + crew.index; i < count; i += crew.size) one(i);

  for (std::size_t first = crew.index; first < packs; first += crew.size * kPacksAtOnce) {
    P values[kPacksAtOnce];
    P next[kPacksAtOnce];
    const auto load = [&](const std::byte* from, P* packed) {
      const P* const at = reinterpret_cast<const P*>(from + head * sizeof(T));
#pragma unroll
      for (int u = 0; u < kPacksAtOnce; ++u) {
        const std::size_t p = first + u * crew.size;
        if (p < packs) packed[u] = at[p];
      }
    };
    load(in[0], values);
    for (int k = 1; k < inputs; ++k) {
      load(in[k], next);
#pragma unroll
      for (int u = 0; u < kPacksAtOnce; ++u) {
        values[u] = fold.combine(values[u], next[u]);
      }
    }
#pragma unroll
    for (int u = 0; u < kPacksAtOnce; ++u) values[u] = fold.finish(values[u]);
    for (int o = 0; o < outputs; ++o) {
      P* const at = reinterpret_cast<P*>(out[o] + head * sizeof(T));
#pragma unroll
      for (int u = 0; u < kPacksAtOnce; ++u) {
        const std::size_t p = first + u * crew.size;
        if (p < packs) at[p] = values[u];
      }
    }
  }
}

// The fold of an operator. An average is divided by `divisor` if that is not 0.
template <DataType type, ReduceOp op>
struct OperatorFold {
  using Element = Storage<type>;
  std::uint32_t divisor = 0;
  __device__ Element combine(Element a, Element b) const { return combine_on_device<type, op>(a, b); }
  __device__ Pack<Element> combine(const Pack<Element>& a, const Pack<Element>& b) const {
    Pack<Element> result;
    if constexpr (combines_words(type, op)) {
#pragma unroll
      for (int w = 0; w < Pack<Element>::kWords; ++w) result.words[w] = combine_word<type, op>(a.words[w], b.words[w]);
    } else {
      result = Pack<Element>::of(a, b, [this](Element x, Element y) { return combine(x, y); });
    }
    return result;
  }
  __device__ Element finish(Element value) const {
    if constexpr (op == ReduceOp::kAvg) {
      if (divisor != 0) return divide_on_device<type>(value, divisor);
    }
    return value;
  }
  __device__ Pack<Element> finish(const Pack<Element>& value) const {
    if constexpr (op == ReduceOp::kAvg) {
      return Pack<Element>::of(value, value, [this](Element x, Element) { return finish(x); });
    } else {
      return value;
    }
  }
};

// The fold that only copies.
template <class T>
struct CopyFold {
  using Element = T;
  __device__ Element combine(Element, Element b) const { return b; }
  __device__ Pack<T> combine(const Pack<T>&, const Pack<T>& b) const { return b; }
  __device__ Pack<T> finish(const Pack<T>& value) const { return value; }
  __device__ Element finish(Element value) const { return value; }
};

}  // namespace tutti::internal::reduction
