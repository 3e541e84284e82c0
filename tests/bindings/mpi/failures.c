/* Errors of collectives that tutti serves: the error handler that is called, and the results of the calls that
   complete them. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "extension.h"

enum { kRequests = 3 };

static int rank, ranks, wrong;
static MPI_Comm called_for;
static int calls;
static int called_with;

static void expect(int holds, const char* what) {
  if (!holds && ++wrong < 20) fprintf(stderr, "rank %d: %s\n", rank, what);
}

static int class_of(int error) {
  int kind = MPI_SUCCESS;
  MPI_Error_class(error, &kind);
  return kind;
}

/* The replacement for a freed communicator has its name. MPICH has no texts for tutti's errors. */
static void check_texts(MPI_Comm comm, int error) {
  char text[MPI_MAX_ERROR_STRING] = "";
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  MPI_Comm_get_name(comm, name, &length);
  expect(strcmp(name, "handled") == 0, "the communicator's name");
  MPI_Error_string(error, text, &length);
#if defined(OPEN_MPI)
  expect(class_of(error) != MPI_ERR_OTHER || strstr(text, "tutti: a collective has failed") != NULL,
         "the error's text");
#endif
}

static void on_error(MPI_Comm* comm, int* error, ...) {
  check_texts(*comm, *error);
  called_for = *comm;
  called_with = class_of(*error);
  ++calls;
}

/* A separate communicator, which tutti serves, with the handler above. The handler of MPI_COMM_WORLD ends the
 * program. */
static MPI_Comm handled(void) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_name(comm, "handled");
  MPI_Comm_create_errhandler(on_error, &handler);
  MPI_Comm_set_errhandler(comm, handler);
  MPI_Errhandler_free(&handler);
  MPI_Barrier(comm);
  calls = 0;
  called_for = MPI_COMM_NULL;
  return comm;
}

/* Completes all, and finds the error of requests[1], and no other. */
static void complete(int how, MPI_Request* requests) {
  MPI_Status* volatile ignored = MPI_STATUSES_IGNORE; /* in MPICH not an array, about which compilers warn */
  MPI_Status statuses[kRequests];
  int indices[kRequests];
  int errors[kRequests] = {MPI_SUCCESS, MPI_SUCCESS, MPI_SUCCESS};
  int error = MPI_SUCCESS;
  int flag = 0;
  int index = 0;
  int done = 0;
  for (int at = 0; at < kRequests; ++at) statuses[at].MPI_ERROR = MPI_SUCCESS;
  switch (how) {
    case 0:
      for (int at = 0; at < kRequests; ++at) errors[at] = MPI_Wait(&requests[at], MPI_STATUS_IGNORE);
      break;
    case 1:
      for (int at = 0; at < kRequests; ++at) {
        for (flag = 0; !flag;) errors[at] = MPI_Test(&requests[at], &flag, MPI_STATUS_IGNORE);
      }
      break;
    case 2:
    case 3:
      if (how == 2) {
        error = MPI_Waitall(kRequests, requests, statuses);
      } else {
        while (!flag) error = MPI_Testall(kRequests, requests, &flag, statuses);
      }
      expect(error == MPI_ERR_IN_STATUS, "an error is in the statuses");
      for (int at = 0; at < kRequests; ++at) errors[at] = statuses[at].MPI_ERROR;
      break;
    case 4:
    case 5:
      for (int at = 0; at < kRequests; ++at) {
        if (how == 4) {
          error = MPI_Waitany(kRequests, requests, &index, MPI_STATUS_IGNORE);
        } else {
          for (flag = 0; !flag;) error = MPI_Testany(kRequests, requests, &index, &flag, MPI_STATUS_IGNORE);
        }
        expect(index >= 0 && index < kRequests, "an index");
        if (index >= 0 && index < kRequests) errors[index] = error;
      }
      break;
    case 6:
    case 7:
      for (int all = 0; all < kRequests && done != MPI_UNDEFINED; all += done) {
        error = how == 6 ? MPI_Waitsome(kRequests, requests, &done, indices, statuses)
                         : MPI_Testsome(kRequests, requests, &done, indices, statuses);
        for (int at = 0; error != MPI_SUCCESS && at < done; ++at) errors[indices[at]] = statuses[at].MPI_ERROR;
      }
      break;
    default:
      expect(class_of(MPI_Waitall(kRequests, requests, ignored)) == MPI_ERR_IN_STATUS, "an error without statuses");
      errors[1] = MPI_ERR_OTHER;
  }
  for (int at = 0; at < kRequests; ++at) {
    expect(class_of(errors[at]) == (at == 1 ? MPI_ERR_OTHER : MPI_SUCCESS), "the error of a request");
  }
}

/* The ranks call different collectives. */
static void nonblocking(int how) {
  MPI_Comm comm = handled();
  MPI_Request requests[kRequests];
  int sum = 0;
  MPI_Irecv(NULL, 0, MPI_BYTE, rank, how, MPI_COMM_WORLD, &requests[0]);
  /* The call of rank 0 is the last, so that no other call finds the communicator failed. */
  if (rank != 0) MPI_Ibarrier(comm, &requests[1]);
  PMPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm, &requests[1]);
  MPI_Isend(NULL, 0, MPI_BYTE, rank, how, MPI_COMM_WORLD, &requests[2]);
  complete(how, requests);
  expect(calls == 1 && called_for == comm && called_with == MPI_ERR_OTHER, "the communicator's error handler");
  for (int at = 0; at < kRequests; ++at) expect(requests[at] == MPI_REQUEST_NULL, "a request is left");
  MPI_Comm_free(&comm);
  /* The handles may be the same again. */
  for (int at = 0; at < kRequests; ++at) {
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[at]);
    expect(MPI_Wait(&requests[at], MPI_STATUS_IGNORE) == MPI_SUCCESS, "a request after one that has failed");
  }
}

/* frees: frees the communicator, whose handler its requests keep. */
static void persistent(int how, int frees) {
  MPI_Comm comm = handled();
  MPI_Request requests[kRequests];
  MPI_Request collective = MPI_REQUEST_NULL;
  int sum = 0;
  if (rank == 0) {
    PERSISTENT(Allreduce)(&rank, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &collective);
  } else {
    PERSISTENT(Barrier)(comm, MPI_INFO_NULL, &collective);
  }
  if (frees) MPI_Comm_free(&comm);
  requests[1] = collective;
  MPI_Irecv(NULL, 0, MPI_BYTE, rank, how, MPI_COMM_WORLD, &requests[0]);
  if (rank != 0) MPI_Start(&requests[1]);
  PMPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) MPI_Start(&requests[1]);
  MPI_Isend(NULL, 0, MPI_BYTE, rank, how, MPI_COMM_WORLD, &requests[2]);
  complete(how, requests);
  expect(calls == 1 && called_with == MPI_ERR_OTHER, "the error handler of a persistent collective's communicator");
  expect(frees || called_for == comm, "the communicator of a persistent collective");
  expect(requests[1] == collective, "a persistent request is gone");
  MPI_Request_free(&collective);
  if (!frees) MPI_Comm_free(&comm);
}

/* A datatype of 2^54 bytes whose elements share one address: no memory can hold it packed. */
static MPI_Datatype huge(void) {
  MPI_Datatype row = MPI_DATATYPE_NULL;
  MPI_Datatype all = MPI_DATATYPE_NULL;
  MPI_Type_create_hvector(1 << 30, 1, 0, MPI_INT, &row);
  MPI_Type_create_hvector(1 << 22, 1, 0, row, &all);
  MPI_Type_commit(&all);
  MPI_Type_free(&row);
  return all;
}

static void expect_no_memory(int error, MPI_Comm comm, const char* what) {
  expect(class_of(error) == MPI_ERR_NO_MEM, what);
  expect(calls == 1 && called_for == comm && called_with == MPI_ERR_NO_MEM, "the error handler for want of memory");
  calls = 0;
}

static void no_memory(void) {
  MPI_Comm comm = handled();
  MPI_Datatype type = huge();
  MPI_Request request = MPI_REQUEST_NULL;
  const int mine = 1;
  int buffer = 0;
  int sum = 0;
  expect_no_memory(MPI_Bcast(&buffer, 1, type, 0, comm), comm, "a broadcast");
  expect_no_memory(MPI_Ibcast(&buffer, 1, type, 0, comm, &request), comm, "a nonblocking broadcast");
  PERSISTENT(Bcast)(&buffer, 1, type, 0, comm, MPI_INFO_NULL, &request);
  for (int time = 0; time < 2; ++time) expect_no_memory(MPI_Start(&request), comm, "a persistent broadcast");
  MPI_Request_free(&request);
  /* Nothing has been sent: the communicator is still usable. */
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
  expect(sum == ranks && calls == 0, "after want of memory");
  MPI_Type_free(&type);
  MPI_Comm_free(&comm);
}

int main(int argc, char** argv) {
  int all_wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  no_memory();
  for (int how = 0; how <= 8; ++how) {
    nonblocking(how);
    persistent(how, how % 2);
  }
  PMPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d wrong\n", all_wrong);
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}
