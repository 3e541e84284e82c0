// What make_metrics() chooses from. Threads: of each duty, the monitor's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "monitor/monitor.h"

namespace tutti::internal::monitor {

// For duties that write from time to time what this process's ranks have done.
struct MetricsWriter {
  std::string host;
  int pid = 0;
  std::int64_t interval_ms = 0;
};

// DIRECTORY/tutti-HOST-PID.prom, rewritten each interval and removed at the end. Also removes files of this host that
// no process has rewritten for long.
Result<std::unique_ptr<Duty>> make_prometheus_file(const std::string& directory, const MetricsWriter& writer);
// DIRECTORY/tutti-HOST-PID.jsonl, to which lines are added each interval and at the end.
Result<std::unique_ptr<Duty>> make_lines_file(const std::string& directory, const MetricsWriter& writer);
// The same lines for a process that listens at a Unix socket, which may come and go.
Result<std::unique_ptr<Duty>> make_lines_socket(const std::string& path, const MetricsWriter& writer);
// Answers GET /metrics for all processes of this host that it may read.
Result<std::unique_ptr<Duty>> make_metrics_server(const std::string& address);

}  // namespace tutti::internal::monitor
