// A schedule is one rank's part of a collective, as data: which chunks it sends to which peer, receives and combines,
// and in which order. It has no sizes, addresses or times: chunks are numbers, and only a Layout (layout.h) maps them
// to bytes. One schedule therefore serves every count and datatype, runs on any executor, and can be proven (verify.h)
// and simulated.
//
// Order: steps with one peer in one direction form a lane and run in schedule order. The k-th chunk that a rank sends
// to a peer is the k-th chunk that the peer receives from the rank. Only dependencies order steps of different lanes.
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
  kRecvReduce,  // target = source (op) the peer's chunks, or the other way round: see Step::reversed
  kCopy,        // target = source
  kReduce,      // target = source (op) operand, or the other way round
};

// The order in which the ranks' values are combined: any, or a0 op a1 op ... with any grouping, as non-commutative
// operators need.
enum class Order : bool { kAny, kRanks };

// The buffer of a chunk. Each buffer numbers its chunks. In an in-place call, kInput and kOutput are the same memory,
// chunk c of one equal to chunk c of the other. The Builder orders accesses as if that were always so
// (CollectiveInfo::input_is_output).
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
  Buffer operand =
      Buffer::kOutput;       // the second value that kReduce reads, chunks as in the target; unused by all others
  bool final = false;        // this combination completes the reduction: an average divides here
  bool reversed = false;     // a combination whose source is the later operand: matters where (op) does not commute
  std::uint16_t chunks = 0;  // how many
  std::uint32_t source_chunk = 0;  // the first in the source; kRecv: as in the target
  std::uint32_t target_chunk = 0;  // the first in the target; kSend: as in the source
  std::int32_t peer = -1;          // rank in the communicator; -1 for kCopy and kReduce
  std::uint32_t first_dependency = 0;
  std::uint16_t dependencies = 0;  // how many entries from first_dependency on

  [[nodiscard]] ChunkRange source_range() const { return {source_chunk, chunks}; }
  [[nodiscard]] ChunkRange target_range() const { return {target_chunk, chunks}; }
  bool operator==(const Step&) const = default;
};
static_assert(sizeof(Step) == 28);

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

// Whether `later` begins only after all of `earlier`, even without a dependency: steps that receive from one peer run
// one after the other in a lane, and so do all local steps of a rank.
constexpr bool same_ordered_lane(const Step& earlier, const Step& later) {
  if (is_local(earlier.kind)) return is_local(later.kind);
  return is_recv(earlier.kind) && is_recv(later.kind) && earlier.peer == later.peer;
}

// The chunks of one buffer that a step accesses.
struct Touched {
  Buffer buffer = Buffer::kInput;
  ChunkRange range;
  bool is_written = false;
  bool in_target = false;  // it is the target, or the operand, which has the target's chunks; else it is the source
};

// Calls f(touched) for each buffer that the step accesses.
template <class F>
void for_touched(const Step& s, F f) {
  if (reads_source(s.kind)) f(Touched{s.source, s.source_range(), false, false});
  if (reads_operand(s.kind)) f(Touched{s.operand, s.target_range(), false, true});
  if (writes_target(s.kind)) f(Touched{s.target, s.target_range(), true, true});
}

// How a collective's data is cut. This defines the chunk numbers on every rank:
//  - all-reduce, broadcast, reduce, scans: the vector of `count` elements in `chunks` parts, blocks == 1;
//  - reduce-scatter, all-gather, gather, scatter, all-to-all: block b belongs to rank b, or is for it; each block of
//    `count` elements is cut into chunks / blocks parts, so chunk c is part of block c / (chunks / blocks);
//  - barrier: one chunk of no bytes.
// Input and output use the chunk numbers of the vector, even if they hold only some of the chunks. Scratch has its own
// chunk numbers and is cut like the vector's blocks; a rank has as many scratch chunks as its steps use.
struct Shape {
  Collective collective = Collective::kAllReduce;
  std::int32_t ranks = 1;
  std::int32_t root = 0;     // 0 where the collective has none
  std::uint32_t chunks = 1;  // of the whole vector
  std::uint32_t blocks = 1;  // 1, or ranks

  // Avoids a division if it can, because it is on the path of every operation.
  [[nodiscard]] constexpr std::uint32_t chunks_per_block() const {
    if (chunks == blocks) return 1;
    return blocks == 1 ? chunks : chunks / blocks;
  }
  // Whether `rank` must find chunk c in its output at the end.
  [[nodiscard]] bool in_output(std::int32_t rank, std::uint32_t c) const;
  [[nodiscard]] bool holds_chunk(Holds holds, std::int32_t rank, std::uint32_t c) const {
    const ChunkRange r = held(holds, rank);
    return c - r.first < r.count;
  }
  // All of them.
  [[nodiscard]] ChunkRange held(Holds holds, std::int32_t rank) const;
  // Whether the range lies in one block.
  [[nodiscard]] bool in_one_block(ChunkRange r) const {
    const std::uint32_t per_block = chunks_per_block();
    return r.first / per_block == (r.first + r.count - 1) / per_block;
  }
  bool operator==(const Shape&) const = default;
};

// A dependency is the index of a step for which a step must wait. It is satisfied byte by byte. If both steps access
// the same chunk of the same memory, and one of them writes it, the dependent may work on the bytes that the other has
// finished (for a send: that the transport no longer reads). If they share no memory, it only orders them: the
// dependent begins when the other is done.
struct Schedule {
  Shape shape;
  std::int32_t rank = 0;
  std::vector<Step> steps;
  std::vector<std::uint32_t> dependencies;  // step indices, each lower than that of its dependent
  std::uint32_t scratch_chunks = 0;         // scratch has chunks 0, 1, ..., scratch_chunks - 1
  // Every step of every rank stays inside one block, so the executors may run the schedules on one slice of each block
  // after another (only whole blocks are contiguous in memory). The same on all ranks.
  bool sliceable = true;

  [[nodiscard]] std::span<const std::uint32_t> dependencies_of(const Step& s) const {
    return {dependencies.data() + s.first_dependency, s.dependencies};
  }
  bool operator==(const Schedule&) const = default;
};

// Memory that a step and its dependency both access, and one of them writes: there the dependent must stay behind the
// other.
struct Conflict {
  Touched later;               // of the dependent
  Touched earlier;             // of the step that it depends on
  bool in_place_only = false;  // only where input and output are one memory
};

// Calls f(conflict) for each. Conflicts between the same parts of the two steps, source or target, are one.
template <class F>
void for_conflicts(const Shape& shape, const Step& later, const Step& earlier, F f);

// One line per step, aligned, with its dependencies: what `tutti schedule` prints.
std::string to_text(const Schedule& schedule);

template <class F>
void for_conflicts(const Shape& shape, const Step& later, const Step& earlier, F f) {
  const bool one_memory = info_of(shape.collective).input_is_output;
  // Indexed by the conflicting parts; the stricter one applies.
  Conflict found[2][2];
  bool any[2][2] = {};
  for_touched(later, [&](const Touched& l) {
    for_touched(earlier, [&](const Touched& e) {
      const bool apart = l.buffer != e.buffer;
      if (apart && (!one_memory || l.buffer == Buffer::kScratch || e.buffer == Buffer::kScratch)) return;
      if (!l.is_written && !e.is_written) return;
      if (l.range.first >= e.range.first + e.range.count || e.range.first >= l.range.first + l.range.count) return;
      Conflict& c = found[l.in_target ? 1 : 0][e.in_target ? 1 : 0];
      bool& is_known = any[l.in_target ? 1 : 0][e.in_target ? 1 : 0];
      if (is_known && !c.in_place_only) return;
      c = {l, e, apart};
      is_known = true;
    });
  });
  for (int l = 0; l < 2; ++l) {
    for (int e = 0; e < 2; ++e) {
      if (any[l][e]) f(found[l][e]);
    }
  }
}

}  // namespace tutti::internal::schedule
