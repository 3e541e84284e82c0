/* An MPI program that hands one all-reduce to tutti: mpicc mpi_all_reduce.c -ltutti. */
#include <stdio.h>
#include <tutti/tutti_mpi.h>

int main(int argc, char** argv) {
  tuttiComm_t comm = NULL;
  double mine[2] = {1.0, 0.0};
  double sums[2] = {0.0, 0.0};
  double expected[2] = {0.0, 0.0};
  int rank = 0;
  int right = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  mine[1] = (double)rank;
  if (tuttiCommInitMPI(&comm, MPI_COMM_WORLD, NULL) != tuttiSuccess ||
      tuttiAllReduce(mine, sums, 2, tuttiFloat64, tuttiSum, comm, NULL) != tuttiSuccess) {
    fprintf(stderr, "rank %d: %s\n", rank, tuttiGetLastError(comm));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Allreduce(mine, expected, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  right = sums[0] == expected[0] && sums[1] == expected[1];
  printf("rank %d: %g ranks, sum of their numbers %g\n", rank, sums[0], sums[1]);
  tuttiCommDestroy(comm);
  MPI_Finalize();
  return right ? 0 : 1;
}
