// The adversary's decisions for one side of one lane: where the stream of bytes is cut, and for how many tries each
// piece is held back. A function of the seed and of the bytes and tries so far, never of the clock, so that a failing
// run can be replayed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tutti::internal::transport::sim {

// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Uniform enough in [0, bound). REQUIRES: bound > 0.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

class Pacer {
 public:
  // `benign`: nothing is cut or held back.
  Pacer(std::uint64_t seed, bool benign) : random_(seed), benign_(benign) { draw(); }

  // Bytes up to the next cut; 0 while the piece is held back, each call shortens that by one.
  std::size_t allow() {
    if (wait_ > 0) {
      --wait_;
      return 0;
    }
    return left_;
  }
  // REQUIRES: n <= what allow() returned last (or widen() since).
  void advance(std::size_t n) {
    left_ -= n;
    if (left_ == 0) draw();
  }
  // The caller cannot use this few bytes: moves the cut away. Returns the new distance to it.
  std::size_t widen() { return left_ += std::max<std::size_t>(left_, 64); }

 private:
  void draw() {
    if (benign_) {
      left_ = SIZE_MAX / 4;
      return;
    }
    const std::uint64_t kind = random_.below(16);
    left_ = static_cast<std::size_t>(1 + random_.below(kind < 4 ? 8 : kind < 10 ? 1000 : 65536));
    const std::uint64_t delay = random_.below(32);
    wait_ = static_cast<std::uint32_t>(delay == 0 ? random_.below(200) : delay < 10 ? random_.below(8) : 0);
  }

  Random random_;
  bool benign_;
  std::size_t left_ = 0;
  std::uint32_t wait_ = 0;
};

}  // namespace tutti::internal::transport::sim
