// Passes the unique id from rank 0 to the launcher's ranks through PMI-1's key-value store.
//
// Threads: as detect_job().
#pragma once

#include "base/config.h"
#include "base/status.h"
#include "join/launch/environment.h"
#include "os/clock.h"

namespace tutti::internal {

// PMI-1's wire protocol over the descriptor in PMI_FD (MPICH's Hydra and its descendants; the protocol is described in
// "PMI: A Scalable Parallel Process-Management Interface", Balaji et al., EuroMPI 2010, and by MPICH's simple PMI
// client). Collective. The descriptor stays usable for a later MPI_Init. If MPI_Init is not called, tutti ends the
// protocol when the process exits; otherwise the launcher would take the exit for a crash.
Result<LaunchedJob> exchange_over_pmi1(int fd, int rank, int ranks, const Settings& settings, Deadline deadline);

}  // namespace tutti::internal
