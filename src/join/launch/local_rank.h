// The local rank of this process among the launcher's processes on this machine, from the environment.
//
// Threads: any.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"

namespace tutti::internal {

struct LocalRank {
  int rank = 0;
  int ranks = 1;
};

// By TUTTI_LOCAL_RANK and TUTTI_LOCAL_SIZE, or by the variables of torchrun, Open MPI, Hydra (MPICH, Intel MPI) or
// Slurm: the innermost launcher (trace.h) applies, in this order if several came together. Variables that MPI_Init has
// set in a process that no MPI launcher started are ignored. If there are no variables: `otherwise`, or without it
// kInvalidUsage with the names that were looked for. kInvalidUsage if variables are invalid.
Result<LocalRank> detect_local_rank(const std::optional<LocalRank>& otherwise = std::nullopt);

// The number of tasks on node `node` (from 0) in a Slurm list: "2(x3),1". 0 if it has no such node or is malformed.
int slurm_tasks_on(const std::string& list, int node);

}  // namespace tutti::internal
