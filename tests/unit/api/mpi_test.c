/* tutti beside MPI in one program: from MPI_COMM_WORLD, from a part of it in reverse order, and from the
 * launcher's environment after MPI_Init has taken its own connection to the launcher. */
/* First, to show that it needs nothing before it: */
/* clang-format off */
#include <tutti/tutti_mpi.h>
/* clang-format on */

#include <stdio.h>

static int failures = 0;

static void expect(int condition, const char* what) {
  if (condition) return;
  ++failures;
  fprintf(stderr, "failed: %s (%s)\n", what, tuttiGetLastError(NULL));
}

/* The tutti communicator has the ranks and sums of the MPI communicator. */
static void compare(tuttiComm_t tutti, MPI_Comm mpi) {
  int mpi_rank = -1, mpi_size = -1, rank = -2, size = -2, mine = 0, sum = -1, mpi_sum = -2;
  MPI_Comm_rank(mpi, &mpi_rank);
  MPI_Comm_size(mpi, &mpi_size);
  expect(tuttiCommUserRank(tutti, &rank) == tuttiSuccess && rank == mpi_rank, "rank");
  expect(tuttiCommCount(tutti, &size) == tuttiSuccess && size == mpi_size, "size");
  mine = 100 + mpi_rank;
  expect(tuttiAllReduce(&mine, &sum, 1, tuttiInt32, tuttiSum, tutti, NULL) == tuttiSuccess, "all-reduce");
  MPI_Allreduce(&mine, &mpi_sum, 1, MPI_INT, MPI_SUM, mpi);
  expect(sum == mpi_sum, "sum");
  expect(tuttiCommDestroy(tutti) == tuttiSuccess, "destroy");
}

int main(int argc, char** argv) {
  tuttiComm_t comm = NULL;
  MPI_Comm part = MPI_COMM_NULL;
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  int rank = 0;
  int all_failures = 0;
  config.init_timeout_ms = 60000;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);

  expect(tuttiCommInitMPI(&comm, MPI_COMM_WORLD, NULL) == tuttiSuccess, "init from MPI_COMM_WORLD");
  if (comm != NULL) compare(comm, MPI_COMM_WORLD);

  comm = NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0, -rank, &part);
  expect(tuttiCommInitMPI(&comm, part, &config) == tuttiSuccess, "init from a part");
  if (comm != NULL) compare(comm, part);
  MPI_Comm_free(&part);

  comm = NULL;
  expect(tuttiCommInitEnv(&comm, &config) == tuttiSuccess, "init from the environment after MPI_Init");
  if (comm != NULL) compare(comm, MPI_COMM_WORLD);

  MPI_Allreduce(&failures, &all_failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return all_failures == 0 ? 0 : 1;
}
