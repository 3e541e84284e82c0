// The variables of launchers in the environment, and which launcher started this process.
//
// Threads: any.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace tutti::internal {

// Variables that one launcher sets at each start of ranks.
struct LauncherVariables {
  std::string launcher;  // as in LaunchedJob
  std::vector<const char*> names;
};

struct Origin {
  bool starts_ranks = true;  // false: PMIx variables that MPI_Init has set in a process that no MPI launcher started
  int generations = 0;       // the fewest: started this process; see ancestry.h
};

// The origin of the variables of each entry. The choice of the rank's and of the local rank's variables depends only on
// this.
std::vector<Origin> origins_of(std::span<const LauncherVariables> all);

// The index of the launcher that started this process: the last one whose variables came into the environment; if
// several came together, the first of these. Empty if none starts ranks.
std::optional<std::size_t> innermost(std::span<const Origin> origins);

// The variables of one launcher in the environment.
struct LauncherTrace {
  std::string launcher;   // as in LaunchedJob
  std::string variables;  // by which it is known, for messages
  std::optional<int> rank;
  std::optional<int> ranks;
  // False as in Origin, and for Slurm's batch script or allocation without started ranks.
  bool starts_ranks = true;
  bool complete = true;  // false: the variables do not give rank 0's address, or a process has closed the PMI
                         // connection
  int generations = 0;   // as in Origin
};

// "pmix (rank 0 of 1)".
std::string text_of(const LauncherTrace& trace);

// Both give the rank or the number of ranks, and the values differ.
bool contradict(const LauncherTrace& a, const LauncherTrace& b);

// The traces of all launchers, in this order: plain variables, PMIx, PMI-1, torchrun, Slurm.
std::vector<LauncherTrace> launchers_in_environment();

// The launcher that started this process: the last one whose variables came into the environment; of several that came
// together and agree, the first in `found`. kInvalidUsage if several came together and contradict each other. `wanted`:
// TUTTI_LAUNCHER, the name of one, or empty. REQUIRES: `found` is not empty.
Result<LauncherTrace> choose_launcher(const std::vector<LauncherTrace>& found, const std::string& wanted);

}  // namespace tutti::internal
