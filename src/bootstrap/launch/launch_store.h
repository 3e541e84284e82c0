// Launchers' key-value stores: how rank 0 hands the unique id to the ranks that a launcher started.
#pragma once

#include <functional>

#include "base/config.h"
#include "base/status.h"
#include "bootstrap/launch/environment.h"

namespace tutti::internal {

// PMIx (Open MPI's mpirun and prte, Slurm's --mpi=pmix), through libpmix opened at run time. Collective
// over the launched processes. A PMIx that the application or its MPI has initialised is shared: PMIx
// counts its users, and tutti stays one until the process exits. kInvalidUsage if tutti was built without PMIx or the
// library cannot be opened.
Result<LaunchedJob> exchange_over_pmix(const Settings& settings, Deadline deadline);

// PMI-1's wire protocol over the descriptor in PMI_FD (MPICH's Hydra and its descendants; the protocol
// is described in "PMI: A Scalable Parallel Process-Management Interface", Balaji et al., EuroMPI 2010,
// and by MPICH's simple PMI client). Collective. The descriptor stays usable for a later MPI_Init;
// if none comes, tutti says the protocol's farewell when the process exits, without which the launcher
// would take the exit for a crash.
Result<LaunchedJob> exchange_over_pmi1(int fd, int rank, int ranks, const Settings& settings, Deadline deadline);

}  // namespace tutti::internal
