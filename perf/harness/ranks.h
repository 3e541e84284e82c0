// Starts the ranks: threads of this process, processes started here, both, or a launcher's processes with one or
// several threads each.
#pragma once

#include <tutti/tutti.h>

#include <functional>

#include "options.h"

namespace tutti::internal::perf {

// The function of one rank. The caller destroys the communicator afterwards. Returns the exit status.
// Called on as many threads as this process has ranks.
using RankMain = std::function<int(tuttiComm_t comm)>;

// How many processes a launcher has started, of which this is one; 0: it was none, or does not say so.
int launched_processes();

// Makes the job that the options ask for and runs `rank_main` on each rank of it that belongs to this
// process or its children. Returns the largest of their statuses; of a rank that crashed, 1. Call it
// before anything else: processes are made by fork.
int run_ranks(const Options& options, const RankMain& rank_main);

}  // namespace tutti::internal::perf
