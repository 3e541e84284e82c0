// The arguments of a generator: some of the ranks, in any order, and chunks. Generators are composed by calling each
// other with smaller groups and fewer chunks.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "schedule/builder.h"

namespace tutti::internal::algorithms {

using schedule::Buffer;
using schedule::Builder;
using schedule::ChunkRange;
using schedule::Completes;
using schedule::ScratchComes;

// Ranks in an order that the algorithm may use, and this rank among them. Members are identified by index.
class Group {
 public:
  // REQUIRES: ranks are distinct and contain me.
  Group(std::vector<int> ranks, int me) : ranks_(std::move(ranks)), size_(static_cast<int>(ranks_.size())) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i] == me) index_ = static_cast<int>(i);
    }
  }
  // Ranks first, first + stride, ..., n of them. REQUIRES: me is one; stride > 0.
  static Group progression(int first, int stride, int n, int me) {
    Group group;
    group.first_ = first;
    group.stride_ = stride;
    group.size_ = n;
    group.index_ = (me - first) / stride;
    return group;
  }
  // Ranks 0 .. n - 1.
  static Group world(int n, int me) { return progression(0, 1, n, me); }

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] int index() const { return index_; }
  // i modulo the size, so that neighbours need no special case. REQUIRES: i >= -size().
  [[nodiscard]] int wrap(int i) const { return (i + size()) % size(); }
  // The rank of member wrap(i).
  [[nodiscard]] int rank(int i) const {
    return ranks_.empty() ? first_ + wrap(i) * stride_ : ranks_[static_cast<std::size_t>(wrap(i))];
  }
  // REQUIRES: rank is a member.
  [[nodiscard]] int index_of(int rank) const {
    if (ranks_.empty()) return (rank - first_) / stride_;
    int i = 0;
    while (ranks_[static_cast<std::size_t>(i)] != rank) ++i;
    return i;
  }

 private:
  Group() = default;

  std::vector<int> ranks_;  // empty: a progression
  int first_ = 0;
  int stride_ = 1;
  int size_ = 0;
  int index_ = 0;
};

// One member's share of the chunks: mostly one range, several if blocks of ranks are interleaved. All parts for one
// generator have the same number of ranges.
using Part = std::vector<ChunkRange>;

// c in k equal parts. REQUIRES: c.count is a multiple of k.
inline std::vector<Part> equal_parts(ChunkRange c, int k) {
  std::vector<Part> parts;
  for (int i = 0; i < k; ++i) {
    parts.push_back({c.part(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(k))});
  }
  return parts;
}

constexpr Completes completes_if(bool last, Completes completes) {
  return last ? completes : Completes::kNo;
}

// The largest power of two that is at most n. REQUIRES: n >= 1.
constexpr int power_of_two_below(int n) {
  int p = 1;
  while (p <= n / 2) p *= 2;
  return p;
}
// Smallest k with 2^k >= n. REQUIRES: n >= 1.
constexpr int ceil_log2(int n) {
  int k = 0;
  while ((std::int64_t{1} << k) < n) ++k;
  return k;
}

}  // namespace tutti::internal::algorithms
