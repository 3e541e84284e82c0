// Reads what processes have written for TUTTI_TRACE (trace_file.h), of running processes too.
//
// Threads: any; no function here has state.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "observe/trace_file.h"

namespace tutti::internal::observe {

struct TracedOperation {
  TraceRecord::Kind kind = TraceRecord::kCollective;
  std::uint32_t number = 0;    // of a collective
  std::uint32_t call = 0;      // words of its fingerprint
  std::uint32_t root = 0;      // likewise; of a transfer: the peer
  std::uint64_t count = 0;     // likewise; of a transfer: bytes
  std::int64_t begun_ns = 0;   // CLOCK_MONOTONIC of the host
  std::int64_t ended_ns = 0;   // not before begun_ns
  std::int64_t waited_ms = 0;  // as in SeenCall
  int waited_for = -1;         // as in SeenCall
  std::uint32_t plan = 0;      // 0: not known
};

// A step as it ran (step_log.h).
struct TracedStep {
  std::uint32_t step = 0;  // its index in the schedule
  std::uint32_t kind = 0;  // schedule::StepKind
  std::int32_t peer = -1;
  std::uint64_t bytes = 0;
  std::int64_t begun_ns = 0;  // CLOCK_MONOTONIC of the host
  std::int64_t ended_ns = 0;  // not before begun_ns
};

// The steps of a collective.
struct TracedSteps {
  std::uint32_t number = 0;  // of the collective; of several that ran as one, of the first
  std::uint32_t plan = 0;
  std::uint64_t bytes = 0;  // of the whole vector
  std::uint32_t element_bytes = 1;
  bool uneven = false;         // its blocks have different sizes
  bool in_order = false;       // it began to run in the order of the schedule, one step after the other
  std::uint64_t left_out = 0;  // steps that are not there
  std::vector<TracedStep> steps;
};

// A rank in one communicator.
struct TracedRank {
  std::uint64_t communicator = 0;  // the same on all of its ranks
  int rank = 0;
  int ranks = 0;
  std::vector<TracedOperation> operations;     // in the order in which they ended
  std::map<std::uint32_t, std::string> plans;  // by the number in the operations
  std::vector<TracedSteps> steps{};            // of some of the collectives, in their order
  std::string job{};                           // selection/job_text.h; empty if another rank has it
};

struct TracedProcess {
  int pid = 0;
  std::string host;
  std::string machine;  // which one, in which boot: processes with the same one have the same clock
  std::string program;
  std::int64_t realtime_offset_ns = 0;  // CLOCK_REALTIME - CLOCK_MONOTONIC, when the file was made
  std::uint64_t dropped = 0;            // operations that are not there, because the file was full
  std::vector<TracedRank> ranks;
};

struct TracedProcesses {
  std::vector<TracedProcess> processes;  // by the names of their files
  std::vector<std::string> others;       // why files were not read
};

// kInvalidArgument: there is no such folder; kSystemError: it may not be read.
Result<TracedProcesses> read_traces(const std::string& folder);

}  // namespace tutti::internal::observe
