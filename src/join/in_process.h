// Ranks that are threads of one process.
#pragma once

#include <vector>

#include "base/status.h"
#include "join/job.h"

namespace tutti::internal {

// The jobs of ranks that are threads of one process, without sockets: one Job for each rank.
Result<std::vector<Job>> make_in_process_jobs(int ranks);

}  // namespace tutti::internal
