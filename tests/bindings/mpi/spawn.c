/* Processes that these processes start without the binding: the MPI library serves communicators with both. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kChildren = 2, kCalls = 40 };

static int wrong;

static void sums(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  for (int time = 0; time < kCalls; ++time) {
    const int one = 1;
    int all = 0;
    MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, comm);
    if (all != size) ++wrong;
  }
}

int main(int argc, char** argv) {
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Comm all = MPI_COMM_NULL;
  MPI_Comm copy = MPI_COMM_NULL;
  int all_wrong = 0;
  int rank = 0;
  /* mpirun's variables for this process are not for its children. */
  unsetenv("LD_PRELOAD");
  MPI_Init(&argc, &argv);
  MPI_Comm_get_parent(&between);
  const int is_child = between != MPI_COMM_NULL;
  sums(MPI_COMM_WORLD);
  if (!is_child) {
    MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, kChildren, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between, MPI_ERRCODES_IGNORE);
  }
  MPI_Intercomm_merge(between, is_child, &all);
  sums(all);
  MPI_Comm_dup(all, &copy);
  sums(copy);
  MPI_Comm_free(&copy);
  PMPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, all);
  MPI_Comm_rank(all, &rank);
  if (rank == 0) printf("%d wrong\n", all_wrong);
  MPI_Comm_free(&all);
  MPI_Comm_disconnect(&between);
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}
