/* uneven RANK NAME VALUE: one rank has a different environment. None waits for another that does not come. */
#include <mpi.h>
#include <stdlib.h>

static int rank_of_launcher(void) {
  const char* own = getenv("PMI_RANK") != NULL ? getenv("PMI_RANK") : getenv("OMPI_COMM_WORLD_RANK");
  return own == NULL ? -1 : atoi(own);
}

int main(int argc, char** argv) {
  int rank = 0;
  int ranks = 0;
  int sum = 0;
  MPI_Comm other = MPI_COMM_NULL;
  if (argc != 4) return 2;
  if (rank_of_launcher() == atoi(argv[1])) setenv(argv[2], argv[3], 1);
  if (MPI_Init(&argc, &argv) != MPI_SUCCESS) return 3;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  MPI_Barrier(other);
  MPI_Comm_free(&other);
  MPI_Finalize();
  return sum == ranks * (ranks - 1) / 2 ? 0 : 1;
}
