// Small collectives of a group that run as one: calls of one kind, which the same plan serves, become one call, in
// whose every block are theirs, one behind the other. Each element is combined as it would have been alone, to the same
// bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "calls/call.h"
#include "epoch/plans.h"

namespace tutti::internal {

// Which of a group's collectives run together depends only on what all ranks know alike, given that they group alike.
class Coalesced {
 public:
  // Longer calls gain nothing where each rank has a processor: groups of 8 and 32 all-reduces of two ranks over shared
  // memory take 0.6 and 0.45 of their time with 8 bytes each, 0.8 with 512, as long with 1 KiB and longer with 2 KiB.
  // Where ranks take turns (four on two processors), 0.2 and 0.08 with 8 bytes, 0.3 with 512.
  static constexpr std::size_t kMostCallBytes = 1024;
  static constexpr std::size_t kMostBytes = std::size_t{32} << 10;

  // `calls`: at least one. All outlive this.
  Coalesced(std::span<const Call> calls, const Plans& plans, int rank, int ranks);

  // The calls that run together: as many of the first ones as can, at least one.
  [[nodiscard]] std::span<const Call> calls() const { return calls_; }
  // REQUIRES (and below): there are several.
  [[nodiscard]] const executor::Plan& plan() const { return *plan_; }
  // In place of the first call's count in the fingerprint, so that ranks which group differently find out.
  [[nodiscard]] std::uint64_t hash_of_counts() const;
  // Of the whole vector.
  [[nodiscard]] std::size_t bytes() const { return block_bytes_ * blocks_of(kind().collective, ranks_); }
  // Of memory for both buffers.
  [[nodiscard]] std::size_t packed_bytes() const { return 2 * bytes(); }
  // The one call, whose buffers are in `memory`, of packed_bytes().
  [[nodiscard]] Call one(std::byte* memory) const;
  // Copy the inputs into the one call's, and its output into theirs.
  void pack(std::byte* memory) const;
  void unpack(const std::byte* memory) const;

 private:
  [[nodiscard]] const Call& kind() const { return calls_.front(); }

  std::span<const Call> calls_;
  const executor::Plan* plan_ = nullptr;
  int rank_;
  int ranks_;
  std::size_t count_ = 0;        // of the one call
  std::size_t block_bytes_ = 0;  // the same in bytes
};

// That none of a group's collectives uses memory which another writes, as far as that is one piece: they may run
// together. kInvalidArgument.
Status check_apart(std::span<const Call> calls, int rank, int ranks);

}  // namespace tutti::internal
