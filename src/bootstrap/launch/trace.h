// What launchers have left in the environment, and which of them started this process.
//
// Threads: any.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tutti::internal {

// What one launcher has left in the environment.
struct LauncherTrace {
  std::string launcher;   // as in LaunchedJob
  std::string variables;  // by which it is known, for messages
  std::optional<int> rank;
  std::optional<int> ranks;
  // False: Slurm's batch script or allocation, in which nobody has started ranks; a PMI connection that a process
  // between has closed; PMIx variables that MPI_Init has set in a process that no MPI launcher started.
  bool starts_ranks = true;
  bool complete = true;  // false: the variables do not tell where rank 0 is
  int generations = 0;   // the fewest: started this process; see ancestry.h
};

// "pmix (rank 0 of 1)".
std::string text_of(const LauncherTrace& trace);

// Both know, and differ in, the rank or the number of ranks.
bool contradict(const LauncherTrace& a, const LauncherTrace& b);

// Of all launchers. In this order: plain variables, PMIx, PMI-1, torchrun, Slurm.
std::vector<LauncherTrace> launchers_in_environment();

// The launcher that started this process: the last one whose variables came into the environment; of several that came
// together and agree, the first in `found`. kInvalidUsage if several came together and contradict each other. `wanted`:
// TUTTI_LAUNCHER, the name of one, or empty. REQUIRES: `found` is not empty.
Result<LauncherTrace> choose_launcher(const std::vector<LauncherTrace>& found, const std::string& wanted);

}  // namespace tutti::internal
