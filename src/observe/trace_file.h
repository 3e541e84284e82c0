// All operations of a process, in a file: TUTTI_TRACE=DIR. `tutti trace` reads it (trace_reader.h).
//
// The file begins with a TraceHeader. Chunks follow one after the other at kTraceHeaderBytes. A chunk has the records
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
#include "observe/step_log.h"

namespace tutti::internal::observe {

inline constexpr std::array<char, 8> kTraceMagic{'t', 'u', 't', 't', 'i', 'T', 'R', '\0'};
inline constexpr std::uint32_t kTraceLayout = 2;  // other numbers cannot be read

struct TraceHeader {
  std::array<char, 8> magic;
  std::uint32_t layout;
  std::uint32_t record_bytes;  // of a TraceRecord
  Origin origin;
  // Of a later moment than that of the origin.
  Word<std::uint64_t> mark_ticks;
  Word<std::int64_t> mark_ns;   // CLOCK_MONOTONIC; written last; 0: none yet
  Word<std::uint64_t> bytes;    // of the file, all chunks included
  Word<std::uint64_t> dropped;  // operations for which there was no room
};
inline constexpr std::size_t kTraceHeaderBytes = 4096;
static_assert(sizeof(TraceHeader) <= kTraceHeaderBytes);

struct alignas(64) TraceRecord {
  enum Kind : std::uint32_t { kCollective = 1, kSend, kReceive, kPlan, kOperation, kSteps, kJob };
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

// Behind the collective whose steps are kept (step_log.h), and before them.
struct alignas(64) OperationRecord {
  std::uint32_t kind;  // TraceRecord::kOperation
  std::uint32_t number;
  std::uint32_t plan;
  std::uint32_t element_bytes;
  std::uint64_t bytes;
  std::uint64_t left_out;  // steps that were too many to be kept
  std::uint32_t uneven;    // 1: its blocks have different sizes
  std::uint32_t in_order;  // as in StepsOf
};
static_assert(sizeof(OperationRecord) == sizeof(TraceRecord));

struct alignas(64) StepsRecord {
  static constexpr std::size_t kSteps = 2;
  std::uint32_t kind;  // TraceRecord::kSteps
  std::uint32_t used;  // how many of these
  std::array<std::uint64_t, kSteps> begun;
  std::array<std::uint64_t, kSteps> ended;
  std::array<std::int32_t, kSteps> peers;
  // The index; above kIndexBits the StepKind; above kKindBits more the highest bits of the bytes.
  std::array<std::uint32_t, kSteps> steps;
  std::array<std::uint32_t, kSteps> bytes;

  static constexpr unsigned kIndexBits = 24;
  static constexpr unsigned kKindBits = 3;
  static constexpr std::uint64_t kMostBytes = (std::uint64_t{1} << (64 - kIndexBits - kKindBits)) - 1;
};
static_assert(sizeof(StepsRecord) == sizeof(TraceRecord));

// A part of the text that describes the job (Trace::name_job).
struct alignas(64) JobRecord {
  std::uint32_t kind;  // TraceRecord::kJob
  std::uint32_t part;  // from 0
  std::array<char, 56> text;
};
static_assert(sizeof(JobRecord) == sizeof(TraceRecord));

struct alignas(64) ChunkHeader {
  std::uint64_t communicator;  // as in Position
  std::int32_t rank;
  std::int32_t ranks;
  std::uint32_t bytes;  // of the chunk: kFirstChunkBytes, or kChunkBytes
  Word<std::uint32_t> records;
};
static_assert(sizeof(ChunkHeader) == sizeof(TraceRecord));

// The first one of a communicator is short: programs make many that they hardly use.
inline constexpr std::size_t kFirstChunkBytes = std::size_t{4} << 10;
inline constexpr std::size_t kChunkBytes = std::size_t{64} << 10;
constexpr std::uint32_t records_of(std::size_t chunk_bytes) {
  return static_cast<std::uint32_t>(chunk_bytes / sizeof(TraceRecord)) - 1;
}
// Of a file: 16 million operations. Steps are kept in the first half of it only.
inline constexpr std::size_t kMostTraceBytes = std::size_t{1} << 30;

struct ChunkOwner {
  std::uint64_t communicator = 0;
  int rank = 0;
  int ranks = 0;
};

// What identifies a collective; the words are those of its Event.
struct CallWords {
  std::uint32_t number = 0;
  std::uint32_t call = 0;
  std::uint32_t root = 0;
  std::uint64_t count = 0;
  std::uint32_t plan = 0;
};

// When an operation ran, in ticks.
struct Times {
  std::uint64_t begun = 0;
  std::uint64_t ended = 0;
};

// The records of one rank in one communicator. Threads: one at a time.
class Trace {
 public:
  // Null: TUTTI_TRACE is not set, or its folder cannot be used, of which the first call warns.
  static std::unique_ptr<Trace> open(std::uint64_t communicator, int rank, int ranks);
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace();

  // waited: as in Event.
  void add_collective(const CallWords& call, const Times& times, std::uint64_t waited);
  void add_transfer(bool sends, int peer, std::uint64_t bytes, const Times& times);
  // Behind their operation.
  void add_steps(const StepLog& log);
  void name_plan(std::uint32_t hash, std::string_view text);
  // What a reader needs to predict the times of this communicator's operations (selection/job_text.h).
  void name_job(std::string_view text);

 private:
  explicit Trace(const ChunkOwner& owner) : owner_(owner) {}
  // False: there is no room.
  bool add(const TraceRecord& record);
  template <class Record>
  bool add_as_record(const Record& record);
  bool take_chunk();

  const ChunkOwner owner_;
  std::byte* chunk_ = nullptr;   // its places, the first of which is the header
  std::size_t chunk_bytes_ = 0;  // of the last chunk
  std::uint32_t records_ = 0;    // in the chunk
  bool keeps_steps_ = true;      // the chunk is in the first half of the file
  std::vector<std::uint32_t> named_;
};

}  // namespace tutti::internal::observe
