// The steps of a simulated collective as a timeline.
#pragma once

#include <string>

#include "algorithms/catalog.h"
#include "base/status.h"
#include "schedule/simulate.h"
#include "topology/graph.h"

namespace tutti::internal::tools {

// In the trace event format (JSON), which Perfetto and chrome://tracing open: hosts as processes, ranks as threads, a
// slice for each step. REQUIRES: timing.steps. kSystemError if the file cannot be written.
Status write_timeline(const std::string& path, const algorithms::AlgorithmEntry& entry, const topology::Graph& graph,
                      const algorithms::Hosts& hosts, int root, const schedule::Timing& timing);

}  // namespace tutti::internal::tools
