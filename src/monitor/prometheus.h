// What ranks do and have done, in the text format of Prometheus (version 0.0.4). docs/metrics.md lists the metrics.
#pragma once

#include <string>
#include <vector>

#include "observe/reader.h"

namespace tutti::internal::monitor {

std::string prometheus_text(const std::vector<observe::SeenProcess>& processes);

}  // namespace tutti::internal::monitor
