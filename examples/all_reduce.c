/* Every rank contributes its number; every rank gets the sum. Start it under mpirun, srun or torchrun,
 * or with TUTTI_RANK, TUTTI_WORLD_SIZE and TUTTI_ROOT set. */
#include <stdio.h>
#include <tutti/tutti.h>

int main(void) {
  tuttiComm_t comm = NULL;
  int rank = 0;
  int ranks = 0;
  float value = 0;
  if (tuttiCommInitEnv(&comm, NULL) != tuttiSuccess) {
    fprintf(stderr, "%s\n", tuttiGetLastError(NULL));
    return 1;
  }
  tuttiCommUserRank(comm, &rank);
  tuttiCommCount(comm, &ranks);
  value = (float)rank;
  /* In place, without a stream: when the call returns, the result is there. */
  if (tuttiAllReduce(&value, &value, 1, tuttiFloat32, tuttiSum, comm, NULL) != tuttiSuccess) {
    fprintf(stderr, "rank %d: %s\n", rank, tuttiGetLastError(NULL));
    tuttiCommAbort(comm);
    return 1;
  }
  printf("rank %d of %d: sum %g\n", rank, ranks, value);
  return tuttiCommDestroy(comm) == tuttiSuccess && value == (float)(ranks * (ranks - 1) / 2) ? 0 : 1;
}
