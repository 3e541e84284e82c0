// All operations of a process, in a file: TUTTI_TRACE=DIR. `tutti trace` reads it (trace_reader.h).
//
// The file begins with a TraceHeader. Chunks of kChunkBytes each follow at kTraceHeaderBytes. A chunk has the records
// of one rank of the process in one communicator, in the order in which they ended; the first place has a ChunkHeader.
// All numbers have the byte order of the machine. What is in the file when the process dies can be read.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "observe/layout.h"
#include "observe/origin.h"

namespace tutti::internal::observe {

inline constexpr std::array<char, 8> kTraceMagic{'t', 'u', 't', 't', 'i', 'T', 'R', '\0'};
inline constexpr std::uint32_t kTraceLayout = 1;  // other numbers cannot be read

struct TraceHeader {
  std::array<char, 8> magic;
  std::uint32_t layout;
  std::uint32_t chunk_bytes;  // kChunkBytes
  Origin origin;
  // Of a later moment than that of the origin.
  Word<std::uint64_t> mark_ticks;
  Word<std::int64_t> mark_ns;  // CLOCK_MONOTONIC; written last; 0: none yet
  Word<std::uint64_t> chunks;
  Word<std::uint64_t> dropped;  // operations for which there was no room
};
inline constexpr std::size_t kTraceHeaderBytes = 4096;
static_assert(sizeof(TraceHeader) <= kTraceHeaderBytes);

struct alignas(64) TraceRecord {
  enum Kind : std::uint32_t { kCollective = 1, kSend, kReceive, kPlan };
  std::uint32_t kind;
  std::uint32_t number;  // of the collective
  std::uint32_t call;    // as in Event; of a transfer: unused
  std::uint32_t root;    // as in Event; of a transfer: the peer
  std::uint64_t count;   // as in Event; of a transfer: bytes
  std::uint64_t begun;   // ticks
  std::uint64_t ended;   // ticks
  std::uint64_t waited;  // as in Event
  std::uint32_t plan;    // as in Event
};
static_assert(sizeof(TraceRecord) == 64);

// Before the first collective that uses a plan: its text.
struct alignas(64) PlanRecord {
  std::uint32_t kind;  // TraceRecord::kPlan
  std::uint32_t hash;
  std::array<char, 56> text;
};
static_assert(sizeof(PlanRecord) == sizeof(TraceRecord));

struct alignas(64) ChunkHeader {
  std::uint64_t communicator;  // as in Position
  std::int32_t rank;
  std::int32_t ranks;
  Word<std::uint32_t> records;
};
static_assert(sizeof(ChunkHeader) == sizeof(TraceRecord));

inline constexpr std::size_t kChunkBytes = std::size_t{64} << 10;
inline constexpr std::uint32_t kChunkRecords = kChunkBytes / sizeof(TraceRecord) - 1;
// Of a file: 16 million operations.
inline constexpr std::size_t kMostTraceBytes = std::size_t{1} << 30;

// The records of one rank in one communicator. Threads: one at a time.
class Trace {
 public:
  // Null: TUTTI_TRACE is not set, or its folder cannot be used, of which the first call warns.
  static std::unique_ptr<Trace> open(std::uint64_t communicator, int rank, int ranks);
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace();

  void add_collective(const Event& event, std::uint32_t number, std::uint64_t ended);
  void add_transfer(bool sends, int peer, std::uint64_t bytes, std::uint64_t begun, std::uint64_t ended);
  void name_plan(std::uint32_t hash, std::string_view text);

 private:
  Trace(std::uint64_t communicator, int rank, int ranks) : communicator_(communicator), rank_(rank), ranks_(ranks) {}
  void add(const TraceRecord& record);
  bool take_chunk();

  const std::uint64_t communicator_;
  const int rank_;
  const int ranks_;
  std::byte* chunk_ = nullptr;  // its places, the first of which is the header
  std::uint32_t records_ = 0;   // in the chunk
  std::vector<std::uint32_t> named_;
};

}  // namespace tutti::internal::observe
