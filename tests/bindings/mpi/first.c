/* Nonblocking collectives without a blocking one: of all processes, which tutti serves, and of a communicator made
 * from them, which it serves from the first blocking call on. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  int rank = 0;
  int ranks = 0;
  int sum = 0;
  int all = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Iallreduce(&sum, &all, 1, MPI_INT, MPI_SUM, comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm_free(&comm);
  printf("%d %d\n", sum, all);
  MPI_Finalize();
  return sum == ranks * (ranks - 1) / 2 && all == ranks * sum ? 0 : 1;
}
