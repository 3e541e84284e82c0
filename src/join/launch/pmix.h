// Passes the unique id from rank 0 to the launcher's ranks through PMIx's key-value store.
//
// Threads: as detect_job().
#pragma once

#include "base/config.h"
#include "base/status.h"
#include "join/launch/environment.h"
#include "os/clock.h"

namespace tutti::internal {

// PMIx (Open MPI's mpirun and prte, Slurm's --mpi=pmix), through libpmix opened at run time. Collective
// over the launched processes. A PMIx that the application or its MPI has initialised is shared: PMIx
// counts its users, and tutti stays one until the process exits. kInvalidUsage if tutti was built without PMIx or the
// library cannot be opened.
Result<LaunchedJob> exchange_over_pmix(const Settings& settings, Deadline deadline);

}  // namespace tutti::internal
