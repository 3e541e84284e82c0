/* A program whose MPI library lets it revoke and shrink communicators, like Open MPI 5 under `mpirun --with-ft
 * ulfm`: it says so in a variable, which this program defines instead. tutti then serves no collective. */
#include <mpi.h>
#include <stdbool.h>

__attribute__((visibility("default"))) extern bool ompi_ftmpi_enabled;
bool ompi_ftmpi_enabled = true;

int main(int argc, char** argv) {
  int ranks = 0;
  int sum = 0;
  const int one = 1;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Comm_free(&comm);
  MPI_Finalize();
  return sum == ranks ? 0 : 1;
}
