// Programs that go on when processes have died: the user-level failure mitigation (ULFM) of MPI libraries. Open MPI 5
// has it if `mpirun --with-ft ulfm` starts the program. The functions of MPICH's interface only end the process.
//
// Threads: any.
#ifndef TUTTI_BINDINGS_MPI_RECOVERY_H_
#define TUTTI_BINDINGS_MPI_RECOVERY_H_

#include <tutti/tutti.h>

#include <string_view>

#include "interface.h"

namespace tutti::mpi {

struct Communicator;

// Whether the MPI library reports failures of processes to the program. After MPI_Init.
bool library_recovers();

// Before a call of the MPI library that waits for ranks which may have died: whether all ranks of `comm` that live have
// passed `holds` and know no rank of `comm` that has died. All of them get the same answer. Without recovery: `holds`.
bool hold_all(MPI_Comm comm, bool holds);
// flag: the bitwise AND of the flags of all ranks of `comm`. If the MPI library recovers, ranks that die do not keep
// the others waiting, and all get the same flag; the error then tells of those that have died. Returns an MPI error
// code.
int agree_on(MPI_Comm comm, int& flag);

// Whether the program or another rank has revoked it. Makes no progress.
bool is_revoked(MPI_Comm comm);

// The error class of a failure of tutti that is MPI's to name: MPIX_ERR_PROC_FAILED or MPIX_ERR_REVOKED. MPI_SUCCESS:
// it is another failure. text: tutti's. May wait up to a second until the MPI library knows of the death or revocation
// as well, so that MPIX_Comm_get_failed and MPIX_Comm_is_revoked agree with the error.
int class_of_recoverable(const Communicator& communicator, tuttiResult_t result, std::string_view text);
bool is_revocation(int error_class);
// Whether the MPI library's error is one of these two. The error handler may have freed the communicator then.
bool is_recoverable(int error);

// A communicator of the processes of MPI_COMM_WORLD that live: MPI_COMM_WORLD itself unless the MPI library recovers.
// MPI_COMM_NULL after an error. Collective over them.
MPI_Comm living_world();
void free_living_world(MPI_Comm living);

// While it lives, errors of calls on the communicator do not reach the program's error handler, which may itself call
// collectives to recover: the caller calls the handler afterwards.
class ErrorsReturned {
 public:
  explicit ErrorsReturned(MPI_Comm comm);
  ~ErrorsReturned();
  ErrorsReturned(const ErrorsReturned&) = delete;
  ErrorsReturned& operator=(const ErrorsReturned&) = delete;

 private:
  MPI_Comm comm_;
  MPI_Errhandler handler_ = MPI_ERRHANDLER_NULL;
};

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_RECOVERY_H_
