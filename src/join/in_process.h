// Ranks that are threads of one process.
#pragma once

#include <vector>

#include "base/status.h"
#include "join/job.h"

namespace tutti::internal {

// The ranks of one process that are threads of it, without any socket: one Job per rank.
Result<std::vector<Job>> make_in_process_jobs(int ranks);

}  // namespace tutti::internal
