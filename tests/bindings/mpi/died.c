/* A process that ends without MPI_Finalize: collectives that tutti serves fail on the others, with the class that MPICH
 * has for it. MPICH's launcher kills the others if a signal ends a process, but not if the process ends by itself. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

static int calls;
static int called_with;

static void on_error(MPI_Comm* comm, int* error, ...) {
  (void)comm;
  MPI_Error_class(*error, &called_with);
  ++calls;
}

int main(int argc, char** argv) {
  int rank = 0;
  int ranks = 0;
  int sum = 0;
  int kind = MPI_SUCCESS;
  const int one = 1;
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_create_errhandler(on_error, &handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == ranks - 1) {
    for (int other = 0; other < rank; ++other) {
      MPI_Recv(&sum, 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    _exit(0); /* all have left the first call */
  }
  MPI_Send(&sum, 1, MPI_INT, ranks - 1, 0, MPI_COMM_WORLD);
  const int error = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Error_class(error, &kind);
  /* MPI_Finalize would wait for the dead. */
  fprintf(stderr, "tutti: rank %d has %s, as %d call of its error handler\n", rank,
          kind == MPIX_ERR_PROC_FAILED && called_with == kind ? "MPIX_ERR_PROC_FAILED" : "another class", calls);
  fflush(stderr);
  _exit(0);
}
