// The duties that TUTTI_METRICS names (docs/metrics.md): files for the textfile collector of node_exporter, a server
// for Prometheus, and lines of JSON in the form of NCCL's Inspector.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "monitor/monitor.h"

namespace tutti::internal::monitor {

struct MetricsTarget {
  enum class Kind : std::uint8_t { kPrometheusFile, kHttp, kLinesFile, kLinesSocket };
  Kind kind = Kind::kPrometheusFile;
  std::string where;  // a folder, an address as for parse_listen_address(), or the path of a Unix socket
};
// "prom:DIR", "http:ADDRESS", "json:DIR", "unix:PATH", or several of them, separated by commas. kInvalidUsage: it is
// something else.
Result<std::vector<MetricsTarget>> parse_metrics(const std::string& text);

// The duties that the environment asks for. What cannot be done is left out, with a warning. Any thread.
Duties make_metrics();

}  // namespace tutti::internal::monitor
