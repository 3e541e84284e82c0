// Which job this process belongs to, by what its launcher left in the environment.
//
// Threads: any, but one join at a time in a process, and in the same order on all ranks: each takes the next name in
// the launcher's key-value store.
#pragma once

#include <string>
#include <variant>

#include "base/status.h"
#include "join/join.h"

namespace tutti::internal {

struct LaunchedJob {
  std::string launcher;  // "plain", "pmix", "pmi1", "slurm", "torchrun": for tests
  int rank = 0;
  int ranks = 1;
  // Either the root is known beforehand, or the id was exchanged through the launcher's key-value store.
  std::variant<KnownRoot, UniqueIdBytes> root;
};

// By the variables of the launcher that choose_launcher() names: plain TUTTI_* variables, PMIx (Open MPI, Slurm), PMI-1
// (MPICH's Hydra), torchrun, Slurm without PMIx. kInvalidUsage with what was looked for if there is none, with what is
// wrong if a launcher's variables are there but unreadable, and if launchers contradict each other.
Result<LaunchedJob> detect_job(const Settings& settings, Deadline deadline);

// The first host of a Slurm node list: "n[03-05,9],m2" -> "n03". Empty if it is malformed.
std::string first_slurm_host(const std::string& list);

}  // namespace tutti::internal
