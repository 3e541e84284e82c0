// A schedule is one rank's part of a collective, as data: which chunks it sends to whom, what it
// receives, what it combines, in which order. It holds no sizes, no addresses, no time: chunks are
// numbers, and only a Layout (layout.h) says which bytes a chunk is. One schedule therefore serves
// every count and datatype, runs on any executor, and can be proven (verify.h) and simulated.
//
// Order: steps that talk to one peer in one direction form a lane and happen in schedule order. The
// k-th chunk that a rank sends to a peer is the k-th chunk which that peer receives from the rank.
// Steps of different lanes are ordered by their dependencies alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"

namespace tutti::internal::schedule {

enum class StepKind : std::uint8_t {
  kSend,        // source -> peer
  kRecv,        // peer -> target
  kRecvReduce,  // target = source (op) what the peer sent
  kCopy,        // target = source
  kReduce,      // target = source (op) operand
};

// Where a chunk lies. An in-place call makes kInput and kOutput the same memory: a chunk has the same
// number in both, and the Builder orders accesses as if they always were.
enum class Buffer : std::uint8_t { kInput = 0, kOutput = 1, kScratch = 2 };
inline constexpr int kBuffers = 3;

// Chunks first, first + 1, ..., first + count - 1.
struct ChunkRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool operator==(const ChunkRange&) const = default;
  // The i-th of k equal parts. REQUIRES: count is a multiple of k, i < k.
  [[nodiscard]] ChunkRange part(std::uint32_t i, std::uint32_t k) const { return {first + i * (count / k), count / k}; }
};

struct Step {
  StepKind kind = StepKind::kSend;
  Buffer source = Buffer::kInput;   // read; unused by kRecv
  Buffer target = Buffer::kOutput;  // written; unused by kSend
  bool final = false;               // this combination completes the reduction: an average divides here
  std::int32_t peer = -1;           // rank in the communicator; -1 for kCopy and kReduce
  std::uint32_t chunk = 0;          // first chunk, in every buffer alike
  std::uint16_t chunks = 0;         // how many
  std::uint16_t dependencies = 0;   // how many entries from first_dependency on
  std::uint32_t first_dependency = 0;
  Buffer operand = Buffer::kOutput;  // the second value that kReduce reads; unused by all others
  std::uint8_t reserved[3] = {};

  [[nodiscard]] ChunkRange range() const { return {chunk, chunks}; }
};
static_assert(sizeof(Step) == 24);

constexpr bool is_local(StepKind k) {
  return k == StepKind::kCopy || k == StepKind::kReduce;
}
constexpr bool is_recv(StepKind k) {
  return k == StepKind::kRecv || k == StepKind::kRecvReduce;
}
constexpr bool reads_source(StepKind k) {
  return k != StepKind::kRecv;
}
constexpr bool reads_operand(StepKind k) {
  return k == StepKind::kReduce;
}
constexpr bool writes_target(StepKind k) {
  return k != StepKind::kSend;
}

constexpr bool reads(const Step& s, Buffer b) {
  return (reads_source(s.kind) && s.source == b) || (reads_operand(s.kind) && s.operand == b);
}
constexpr bool writes(const Step& s, Buffer b) {
  return writes_target(s.kind) && s.target == b;
}

// Whether `later` begins only after all of `earlier`, dependency or not: steps that receive from one peer
// are a lane that takes them one after the other, and so are all local steps of a rank.
constexpr bool same_ordered_lane(const Step& earlier, const Step& later) {
  if (is_local(earlier.kind)) return is_local(later.kind);
  return is_recv(earlier.kind) && is_recv(later.kind) && earlier.peer == later.peer;
}

// How a collective's data is cut, which fixes what a chunk number means on every rank:
//  - all-reduce, broadcast, reduce: the vector of `count` elements in `chunks` parts, blocks == 1;
//  - reduce-scatter, all-gather: block b belongs to rank b; each block of `count` elements is cut into
//    chunks / blocks parts, so chunk c is part of block c / (chunks / blocks);
//  - barrier: one chunk of no bytes.
struct Shape {
  Collective collective = Collective::kAllReduce;
  std::int32_t ranks = 1;
  std::int32_t root = 0;     // 0 where the collective has none
  std::uint32_t chunks = 1;  // of the whole vector
  std::uint32_t blocks = 1;  // 1, or ranks

  // Divides only where it must: it is on the path of every operation.
  [[nodiscard]] std::uint32_t chunks_per_block() const {
    if (chunks == blocks) return 1;
    return blocks == 1 ? chunks : chunks / blocks;
  }
  // Whether `rank` contributes chunk c from its input / must find chunk c in its output at the end.
  [[nodiscard]] bool in_input(std::int32_t rank, std::uint32_t c) const;
  [[nodiscard]] bool in_output(std::int32_t rank, std::uint32_t c) const;
  [[nodiscard]] bool holds_chunk(Holds holds, std::int32_t rank, std::uint32_t c) const;
};

// The steps before which a step may not touch a byte. A dependency is a step index; it is satisfied
// byte by byte: where both steps cover chunk c, the dependent may work on those bytes of c that the
// other has finished with (for a send: that the transport no longer reads).
struct Schedule {
  Shape shape;
  std::int32_t rank = 0;
  std::vector<Step> steps;
  std::vector<std::uint32_t> dependencies;  // step indices, each lower than that of its dependent
  bool uses_scratch = false;
  // Every step stays inside one block, so the executor may run the schedule on slices of each block
  // in turn (only whole blocks are contiguous in memory).
  bool sliceable = true;

  [[nodiscard]] std::span<const std::uint32_t> dependencies_of(const Step& s) const {
    return {dependencies.data() + s.first_dependency, s.dependencies};
  }
};

// One line per step, aligned, with its dependencies: what `tutti schedule` prints.
std::string to_text(const Schedule& schedule);

}  // namespace tutti::internal::schedule
