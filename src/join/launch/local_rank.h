// Which of the processes that a launcher has started on this machine this one is, by what it left in the environment.
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
// Slurm: by those of the innermost launcher (trace.h), and in this order if they came together. What MPI_Init has set
// in a process that no MPI launcher started does not count. `otherwise` if there is none, or without that kInvalidUsage
// with what was looked for; kInvalidUsage with what is wrong if variables are there but unreadable.
Result<LocalRank> detect_local_rank(const std::optional<LocalRank>& otherwise = std::nullopt);

// How many tasks a Slurm list has on the node of that number, from 0 on: "2(x3),1". 0 if it has no such node or is
// malformed.
int slurm_tasks_on(const std::string& list, int node);

}  // namespace tutti::internal
