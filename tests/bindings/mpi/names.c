/* Functions of MPI 4 that this MPI library may lack, looked up by name as programs do that run with several MPI
 * libraries. Missing ones are errors of the communicator, and the program continues. Run with LD_BIND_NOW=1. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

typedef int Barrier(MPI_Comm, MPI_Info, MPI_Request*);
typedef int Bcast(void*, int, MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request*);
typedef int Reduction(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info, MPI_Request*);
typedef int LargeBcast(void*, MPI_Count, MPI_Datatype, int, MPI_Comm);

union Function {
  void* address;
  Barrier* barrier;
  Bcast* bcast;
  Reduction* reduction;
  LargeBcast* large_bcast;
};

enum { kCount = 20000 };

static int wrong, lacking, calls, called_with;
static int mine[kCount], sum[kCount];

static void expect(int holds, const char* what) {
  if (!holds && ++wrong < 20) fprintf(stderr, "%s\n", what);
}

static int class_of(int error) {
  int kind = MPI_SUCCESS;
  MPI_Error_class(error, &kind);
  return kind;
}

static void on_error(MPI_Comm* comm, int* error, ...) {
  (void)comm;
  called_with = class_of(*error);
  ++calls;
}

/* Whether the function is there. `own`: the MPI library's, without which it is not. */
static int found(union Function* function, const char* name, const char* own) {
  function->address = dlsym(RTLD_DEFAULT, name);
  if (function->address == NULL) {
    ++lacking;
    expect(dlsym(RTLD_DEFAULT, own) == NULL, "a function is not found that the MPI library has");
  }
  calls = 0;
  return function->address != NULL;
}

/* What a call may return. True if it has worked. */
static int check(int error, const char* own) {
  if (dlsym(RTLD_DEFAULT, own) != NULL) {
    expect(error == MPI_SUCCESS && calls == 0, own);
    return 1;
  }
  ++lacking;
  expect(class_of(error) == MPI_ERR_UNSUPPORTED_OPERATION, "the class of the error");
  expect(calls == 1 && called_with == MPI_ERR_UNSUPPORTED_OPERATION, "the communicator's error handler");
  return 0;
}

static void complete(MPI_Request* request) {
  MPI_Start(request);
  MPI_Wait(request, MPI_STATUS_IGNORE);
  MPI_Request_free(request);
}

static void reduce(const char* name, const char* own, MPI_Comm comm, int count, int expected) {
  MPI_Request request = MPI_REQUEST_NULL;
  union Function function;
  if (!found(&function, name, own)) return;
  for (int at = 0; at < count; ++at) mine[at] = 1;
  if (!check(function.reduction(mine, sum, count, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request), own)) return;
  complete(&request);
  expect(sum[count - 1] == expected, name);
}

int main(int argc, char** argv) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  union Function function;
  int rank = 0;
  int ranks = 0;
  int all_wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_create_errhandler(on_error, &handler);
  MPI_Comm_set_errhandler(comm, handler);
  MPI_Errhandler_free(&handler);
  MPI_Barrier(comm);
  /* Short ones go to the MPI library, long ones do not. */
  for (int count = 1; count <= kCount; count += kCount - 1) {
    reduce("MPI_Allreduce_init", "PMPI_Allreduce_init", comm, count, ranks);
    reduce("MPI_Scan_init", "PMPI_Scan_init", comm, count, rank + 1);
    if (found(&function, "MPI_Bcast_init", "PMPI_Bcast_init") &&
        check(function.bcast(sum, count, MPI_INT, 0, comm, MPI_INFO_NULL, &request), "PMPI_Bcast_init")) {
      complete(&request);
    }
  }
  if (found(&function, "MPI_Barrier_init", "PMPI_Barrier_init") &&
      check(function.barrier(comm, MPI_INFO_NULL, &request), "PMPI_Barrier_init")) {
    complete(&request);
  }
  if (found(&function, "MPI_Bcast_c", "PMPI_Bcast_c")) {
    check(function.large_bcast(sum, kCount, MPI_INT, 0, comm), "PMPI_Bcast_c");
  }
  MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, comm);
  MPI_Comm_free(&comm);
  if (rank == 0) printf("%d wrong, %d functions are lacking\n", all_wrong, lacking);
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}
