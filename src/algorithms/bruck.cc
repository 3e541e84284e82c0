#include "algorithms/bruck.h"

#include <algorithm>
#include <bit>

namespace tutti::internal::algorithms {
namespace {

using At = Builder::At;

// Scratch has room for the messages of two rounds that are sent, in turn, and for those of each round that are
// received.
class ScratchPlaces {
 public:
  ScratchPlaces(std::uint32_t n, std::uint32_t me) : n_(n), me_(me) {}

  // The index in the message of the round of `bit`, which begins with the highest place, so that arrived blocks have
  // the order of the output.
  [[nodiscard]] std::uint32_t index(std::uint32_t k, std::uint32_t bit) const {
    return blocks(bit) - 1 - (k / (2 * bit) * bit + k % bit);
  }
  [[nodiscard]] std::uint32_t blocks(std::uint32_t bit) const {
    const std::uint32_t rest = n_ % (2 * bit);
    return n_ / (2 * bit) * bit + (rest > bit ? rest - bit : 0);
  }
  [[nodiscard]] At sent(std::uint32_t bit) const {
    return {Buffer::kScratch, std::countr_zero(bit) % 2 == 0 ? 0 : half()};
  }
  [[nodiscard]] At received(std::uint32_t bit) const {
    return {Buffer::kScratch, (2 + static_cast<std::uint32_t>(std::countr_zero(bit))) * half()};
  }
  // The position of the block of place k after the rounds below `bit`.
  [[nodiscard]] At before(std::uint32_t k, std::uint32_t bit) const {
    const std::uint32_t done = k % bit;
    if (done == 0) return {Buffer::kInput, (me_ + k) % n_};
    const std::uint32_t last = std::bit_floor(done);
    return {Buffer::kScratch, received(last).chunk + index(k, last)};
  }

 private:
  [[nodiscard]] std::uint32_t half() const { return (n_ + 1) / 2; }
  std::uint32_t n_;
  std::uint32_t me_;
};

// Copies blocks; blocks that are contiguous in source and target are one step.
class Copies {
 public:
  explicit Copies(Builder& b) : b_(b) {}
  void add(At from, At to) {
    const bool goes_on = from.buffer == from_.buffer && from.chunk == from_.chunk + count_ && to.buffer == to_.buffer &&
                         to.chunk == to_.chunk + count_;
    if (count_ > 0 && !goes_on) write();
    if (count_++ > 0) return;
    from_ = from;
    to_ = to;
  }
  // The last.
  void write() {
    if (count_ > 0) b_.copy(from_, to_, count_);
    count_ = 0;
  }

 private:
  Builder& b_;
  At from_;
  At to_;
  std::uint32_t count_ = 0;
};

}  // namespace

void bruck_all_to_all(Builder& b) {
  b.run_whole();
  const auto n = static_cast<std::uint32_t>(b.shape().ranks);
  const auto me = static_cast<std::uint32_t>(b.rank());
  const ScratchPlaces places(n, me);
  b.copy({Buffer::kInput, me}, {Buffer::kOutput, me}, 1);
  for (std::uint32_t bit = 1; bit < n; bit *= 2) {
    const auto to = static_cast<std::int32_t>((me + bit) % n);
    const auto from = static_cast<std::int32_t>((me + n - bit) % n);
    const std::uint32_t blocks = places.blocks(bit);
    if (blocks == 1) {
      b.send_from(to, places.before(bit, bit), 1);
      b.recv_into(from, {Buffer::kOutput, (me + n - bit) % n}, 1);
      continue;
    }
    const At sent = places.sent(bit);
    const At received = places.received(bit);
    Copies copies(b);
    for (std::uint32_t k = n - 1; k >= bit; --k) {
      if ((k & bit) != 0) copies.add(places.before(k, bit), {sent.buffer, sent.chunk + places.index(k, bit)});
    }
    copies.write();
    b.send_from(to, sent, blocks);
    b.recv_into(from, received, blocks);
    // Blocks without a higher bit have arrived.
    for (std::uint32_t k = std::min(2 * bit, n) - 1; k >= bit; --k) {
      copies.add({received.buffer, received.chunk + places.index(k, bit)}, {Buffer::kOutput, (me + n - k) % n});
    }
    copies.write();
  }
}

}  // namespace tutti::internal::algorithms
