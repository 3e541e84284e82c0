/* tutti inside MPI programs. Header only, C99 and C++; compile with mpicc or mpicxx. libtutti itself
 * does not depend on MPI, so one build of it serves every MPI library. */
#ifndef TUTTI_TUTTI_MPI_H_
#define TUTTI_TUTTI_MPI_H_

#include <mpi.h>

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a tutti communicator of the ranks of `comm`, numbered alike. Collective over `comm`, which is used during this
 * call only. config may be NULL. Call it after MPI_Init and destroy the communicator before MPI_Finalize. On failure
 * *tutti_comm is not written.
 *
 * Errors: as tuttiCommInitRankConfig; tuttiSystemError if MPI fails and the error handler of `comm` returns. If rank 0
 * cannot make the unique id, every rank returns rank 0's result code; only rank 0 has the text. On the other ranks, and
 * on all ranks if MPI fails, this call leaves tuttiGetLastError as it was. */
static inline tuttiResult_t tuttiCommInitMPI(tuttiComm_t *tutti_comm, MPI_Comm comm, const tuttiConfig_t *config) {
  struct {
    tuttiUniqueId id;
    int result;
  } message = {{{0}}, (int)tuttiSuccess};
  int rank = 0;
  int ranks = 0;
  if (MPI_Comm_rank(comm, &rank) != MPI_SUCCESS || MPI_Comm_size(comm, &ranks) != MPI_SUCCESS) return tuttiSystemError;
  if (rank == 0) message.result = (int)tuttiGetUniqueId(&message.id);
  if (MPI_Bcast(&message, (int)sizeof message, MPI_BYTE, 0, comm) != MPI_SUCCESS) return tuttiSystemError;
  if (message.result != (int)tuttiSuccess) return (tuttiResult_t)message.result;
  return tuttiCommInitRankConfig(tutti_comm, ranks, message.id, rank, config);
}

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_TUTTI_MPI_H_ */
