/* The module that late.c loads. */
#include <mpi.h>
#include <stdio.h>

int check(void);

__attribute__((visibility("default"))) int check(void) {
  int provided = 0;
  int rank = 0;
  int ranks = 0;
  int sum = 0;
  int largest = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Iallreduce(&rank, &largest, 1, MPI_INT, MPI_MAX, comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm_free(&comm);
  MPI_Finalize();
  if (sum != ranks * (ranks - 1) / 2 || largest != ranks - 1) fprintf(stderr, "rank %d: %d, %d\n", rank, sum, largest);
  return sum == ranks * (ranks - 1) / 2 && largest == ranks - 1 ? 0 : 1;
}
