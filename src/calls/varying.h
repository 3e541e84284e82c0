// Calls whose blocks have counts of their own: their arguments, and where their blocks lie.
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
  const std::size_t* counts = nullptr;         // in elements; null: the buffer holds this rank's own block alone
  const std::size_t* displacements = nullptr;  // in elements; null: one block behind the other
};

// As the C API has them, but that the counts of a reduce-scatter are those of the blocks of its input. The arrays are
// those of the caller, who keeps them until the call has returned.
struct VaryingCounts {
  BlockCounts send;
  BlockCounts recv;
};

// Those of buffers in which this rank has blocks, and no others: what a root alone needs is ignored elsewhere.
VaryingCounts known_counts(const Call& call, int rank);

// A copy of them, for a call that is queued.
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

// By rank, what this one sends to it and receives from it, in bytes. REQUIRES: the counts are not common.
struct PairBytes {
  std::vector<std::uint64_t> sends;
  std::vector<std::uint64_t> receives;
};
PairBytes pair_bytes(const Call& call, int ranks, int rank);

// What the fingerprint of such a call says of its counts: a hash of all of them where all ranks know them, else 0.
std::uint64_t hash_of_counts(const Call& call, int ranks);

// Where the blocks of one call at a time lie. Keeps its memory from call to call.
//
// Threads: the one that runs the communicator's operations.
class VaryingBlocks {
 public:
  // REQUIRES: the call has been checked.
  void lay_out(const Call& call, int ranks, int rank);

  // Bytes of all blocks, as far as this rank knows.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  // From the first byte of the buffer to the end of the block that ends last.
  [[nodiscard]] std::size_t extent(schedule::Buffer buffer) const { return extent_[static_cast<std::size_t>(buffer)]; }
  // Where this rank's own block lies in such a buffer.
  [[nodiscard]] const schedule::ByteRange& own(schedule::Buffer buffer) const {
    return table_.places[static_cast<std::size_t>(buffer)][rank_];
  }
  // Gives each pair of ranks the count that the two have to agree on. `fingerprint`: that of the operation.
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
