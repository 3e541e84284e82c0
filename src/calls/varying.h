// Calls whose blocks have different counts: their arguments and the positions of their blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "executor/operation.h"
#include "schedule/layout.h"

namespace tutti::internal {

struct Call;

// The blocks of one buffer, by rank.
struct BlockCounts {
  const std::size_t* counts = nullptr;         // in elements; null: the buffer contains only this rank's block
  const std::size_t* displacements = nullptr;  // in elements; null: blocks are contiguous
};

// As in the C API, but the counts of a reduce-scatter are those of its input blocks. The arrays belong to the caller,
// who keeps them until the call returns.
struct VaryingCounts {
  BlockCounts send;
  BlockCounts recv;
};

// The counts of the buffers in which this rank has blocks: other ranks ignore arguments that only the root needs.
VaryingCounts known_counts(const Call& call, int rank);

// A copy of the counts, for a queued call.
class VaryingCopy {
 public:
  VaryingCopy(const Call& call, int ranks, int rank);
  VaryingCopy(const VaryingCopy&) = delete;
  VaryingCopy& operator=(const VaryingCopy&) = delete;
  [[nodiscard]] const VaryingCounts& counts() const { return counts_; }

 private:
  std::vector<std::size_t> storage_;
  VaryingCounts counts_;
};

// The bytes that this rank sends to and receives from each rank. REQUIRES: the counts are not common.
struct PairBytes {
  std::vector<std::uint64_t> sends;
  std::vector<std::uint64_t> receives;
};
PairBytes pair_bytes(const Call& call, int ranks, int rank);

// The counts' part of the call's fingerprint: a hash of all counts if all ranks know them, else 0.
std::uint64_t hash_of_counts(const Call& call, int ranks);

// The positions of the blocks of one call at a time. Keeps its memory from call to call.
//
// Threads: the one that runs the communicator's operations.
class VaryingBlocks {
 public:
  // REQUIRES: the call has been checked.
  void lay_out(const Call& call, int ranks, int rank);

  // Bytes of all blocks that this rank knows.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  // From the first byte of the buffer to the end of its last block.
  [[nodiscard]] std::size_t extent(schedule::Buffer buffer) const { return extent_[static_cast<std::size_t>(buffer)]; }
  // The position of this rank's block in such a buffer.
  [[nodiscard]] const schedule::ByteRange& own(schedule::Buffer buffer) const {
    return table_.places[static_cast<std::size_t>(buffer)][rank_];
  }
  // Stores for each pair of ranks the count on which the two must agree. `fingerprint`: the operation's.
  void tell_counts(const transport::Fingerprint& fingerprint, const Call& call);
  [[nodiscard]] const executor::ChunkTable& table() const { return table_; }

 private:
  using Places = std::vector<schedule::ByteRange>;
  void fill(schedule::Buffer buffer, const BlockCounts& blocks, std::size_t element_bytes);
  void fill_own(schedule::Buffer buffer, std::size_t bytes);
  void use(schedule::Buffer buffer, schedule::Buffer other);

  std::size_t ranks_ = 0;
  std::size_t rank_ = 0;
  std::size_t bytes_ = 0;
  std::array<Places, schedule::kBuffers> places_;
  std::array<std::vector<transport::Fingerprint>, schedule::kBuffers> fingerprints_;
  std::array<std::size_t, schedule::kBuffers> extent_{};
  executor::ChunkTable table_;
};

}  // namespace tutti::internal
