// Finds the job of this process by the variables of its launcher in the environment.
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
  // Either the root's address is known, or the id was exchanged through the launcher's key-value store.
  std::variant<KnownRoot, UniqueIdBytes> root;
};

// By the variables of the launcher that choose_launcher() names: plain TUTTI_* variables, PMIx (Open MPI, Slurm), PMI-1
// (MPICH's Hydra), torchrun, Slurm without PMIx. kInvalidUsage if there is no launcher (with the variables that were
// looked for), if a launcher's variables are invalid, and if launchers contradict each other.
Result<LaunchedJob> detect_job(const Settings& settings, Deadline deadline);

// The first host of a Slurm node list: "n[03-05,9],m2" -> "n03". Empty if it is malformed.
std::string first_slurm_host(const std::string& list);

}  // namespace tutti::internal
