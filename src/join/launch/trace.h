// What launchers have left in the environment, and which of them started this process.
//
// Threads: any.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace tutti::internal {

// Variables that one launcher sets anew at each start of ranks.
struct LauncherVariables {
  std::string launcher;  // as in LaunchedJob
  std::vector<const char*> names;
};

struct Origin {
  bool starts_ranks = true;  // false: PMIx variables that MPI_Init has set in a process that no MPI launcher started
  int generations = 0;       // the fewest: started this process; see ancestry.h
};

// Where the variables of each entry come from. Those of the rank and those of the local rank go by this alone.
std::vector<Origin> origins_of(std::span<const LauncherVariables> all);

// The index of the launcher that started this process: the last one whose variables came into the environment, of
// several that came together the first. Nothing if none starts ranks.
std::optional<std::size_t> innermost(std::span<const Origin> origins);

// What one launcher has left in the environment.
struct LauncherTrace {
  std::string launcher;   // as in LaunchedJob
  std::string variables;  // by which it is known, for messages
  std::optional<int> rank;
  std::optional<int> ranks;
  // False, beside what Origin names: Slurm's batch script or allocation, in which nobody has started ranks.
  bool starts_ranks = true;
  bool complete = true;  // false: the variables do not tell where rank 0 is, or a process has closed the PMI connection
  int generations = 0;   // as in Origin
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
