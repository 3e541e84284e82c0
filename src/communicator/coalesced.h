// Small collectives of a group that run as one call: calls of one kind with the same plan are merged, and each block of
// the merged call has theirs, one after the other. Each element gets the same bits as if its call had run alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "calls/call.h"
#include "epoch/plans.h"

namespace tutti::internal {

// The choice of the collectives that run together depends only on values that are the same on all ranks, if all ranks
// group alike.
class Coalesced {
 public:
  // Longer calls gain nothing if each rank has a processor: groups of 8 and 32 all-reduces of two ranks over shared
  // memory take 0.6 and 0.45 of their time with 8 bytes each, 0.8 with 512, the same with 1 KiB and longer with 2 KiB.
  // If ranks are oversubscribed (four on two processors): 0.2 and 0.08 with 8 bytes, 0.3 with 512.
  static constexpr std::size_t kMostCallBytes = 1024;
  static constexpr std::size_t kMostBytes = std::size_t{32} << 10;

  // `calls`: at least one. All outlive this.
  Coalesced(std::span<const Call> calls, const Plans& plans, int rank, int ranks);

  // The calls that run together: the longest possible prefix, at least one call.
  [[nodiscard]] std::span<const Call> calls() const { return calls_; }
  // REQUIRES (here and below): there are several calls.
  [[nodiscard]] const executor::Plan& plan() const { return *plan_; }
  // Replaces the first call's count in the fingerprint, so that ranks detect different grouping.
  [[nodiscard]] std::uint64_t hash_of_counts() const;
  // Of the whole vector.
  [[nodiscard]] std::size_t bytes() const { return block_bytes_ * blocks_of(kind().collective, ranks_); }
  // Bytes of memory for both buffers.
  [[nodiscard]] std::size_t packed_bytes() const { return 2 * bytes(); }
  // The merged call, whose buffers are in `memory`, of packed_bytes().
  [[nodiscard]] Call one(std::byte* memory) const;
  // pack() copies the inputs into the merged call's, unpack() copies its output into theirs.
  void pack(std::byte* memory) const;
  void unpack(const std::byte* memory) const;

 private:
  [[nodiscard]] const Call& kind() const { return calls_.front(); }

  std::span<const Call> calls_;
  const executor::Plan* plan_ = nullptr;
  int rank_;
  int ranks_;
  std::size_t count_ = 0;        // of the merged call
  std::size_t block_bytes_ = 0;  // count_ in bytes
};

// kInvalidArgument if one collective of a group uses memory that another one writes, so that they cannot run together.
// Checks only calls whose buffers are contiguous.
Status check_apart(std::span<const Call> calls, int rank, int ranks);

}  // namespace tutti::internal
