// The traces of all processes of a job (observe/trace_reader.h) on one time axis.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "observe/trace_reader.h"
#include "tools/trace/alignment.h"

namespace tutti::internal::tools {

// How the calls of one rank compare with those of the others in its communicator.
struct RankSummary {
  std::uint64_t communicator = 0;
  int rank = 0;
  int ranks = 0;
  std::string host;
  int pid = 0;
  std::uint64_t collectives = 0;
  std::uint64_t transfers = 0;
  std::uint64_t last = 0;       // collectives that it began after all other ranks
  std::int64_t late_ns = 0;     // how long after the last but one, in sum
  std::int64_t inside_ns = 0;   // in collectives
  std::int64_t waiting_ns = 0;  // of this, before the last rank had begun
};

struct MergedTrace {
  std::map<std::string, HostShift> hosts;  // as align() gives them
  std::vector<RankSummary> ranks;          // by communicator and rank, large communicators first
  std::uint64_t operations = 0;
  std::uint64_t dropped = 0;
  std::uint64_t steps = 0;
  std::string unpredicted;   // why the steps of some operations have no predictions; empty: all have
  std::int64_t span_ns = 0;  // from the first begin to the last end
};

// Writes all operations in the trace event format (JSON), which Perfetto and chrome://tracing open: processes, a row
// for each rank of a communicator, a slice for each operation, rows for its
// steps and for those that the simulator predicts, an arrow from each send to its receive, and one from a rank that is
// late to those that wait for it. kSystemError: the file cannot be written.
Result<MergedTrace> write_merged(const std::vector<observe::TracedProcess>& processes, const std::string& path);

}  // namespace tutti::internal::tools
