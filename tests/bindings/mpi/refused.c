/* Calls that the MPI library refuses on only one rank; the others do not make them. So they must return at once, and
 * must not be counted: all ranks have to change to tutti at the same call (TUTTI_MPI_AFTER). */
#include <mpi.h>
#include <stdio.h>

#include "extension.h"

enum { kMost = 16 };

static int rank, ranks, wrong;

static void expect(int holds, const char* what) {
  if (!holds && ++wrong < 20) fprintf(stderr, "rank %d: %s\n", rank, what);
}

/* More than AFTER of them, on rank 0. */
static void refused(MPI_Comm comm) {
  int data[2 * kMost] = {0};
  int counts[kMost] = {0};
  MPI_Datatype uncommitted = MPI_DATATYPE_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  if (rank != 0) return;
  /* Not with MPI_Allreduce and MPI_Iallreduce: MPICH 4.0 does not survive that. */
  expect(MPI_Bcast(data, -1, MPI_INT, 0, comm) != MPI_SUCCESS, "a count below 0");
  expect(MPI_Allreduce(data, data + kMost, 1, MPI_DATATYPE_NULL, MPI_SUM, comm) != MPI_SUCCESS, "no datatype");
  expect(MPI_Allreduce(data, data + kMost, 1, MPI_DOUBLE, MPI_BAND, comm) != MPI_SUCCESS, "no such operation");
  expect(MPI_Allreduce(data, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS, "allreduce, MPI_IN_PLACE");
  expect(MPI_Allreduce(data, MPI_IN_PLACE, 1, MPI_2INT, MPI_MAXLOC, comm) != MPI_SUCCESS, "maxloc, MPI_IN_PLACE");
  MPI_Type_vector(2, 1, 3, MPI_INT, &uncommitted);
  expect(MPI_Bcast(data, 1, uncommitted, 0, comm) != MPI_SUCCESS, "a datatype that was not committed");
  expect(MPI_Ibcast(data, 1, uncommitted, 0, comm, &request) != MPI_SUCCESS, "the same, nonblocking");
  expect(PERSISTENT(Bcast)(data, 1, uncommitted, 0, comm, MPI_INFO_NULL, &request) != MPI_SUCCESS, "persistent");
  MPI_Type_free(&uncommitted);
  expect(MPI_Bcast(data, 1, MPI_INT, ranks, comm) != MPI_SUCCESS, "no such root");
  expect(MPI_Gather(data, 1, MPI_INT, data, -1, MPI_INT, 0, comm) != MPI_SUCCESS, "a count of the root's below 0");
  counts[0] = -1;
  expect(MPI_Alltoallv(data, counts, counts, MPI_INT, data + kMost, counts, counts, MPI_INT, comm) != MPI_SUCCESS,
         "a count of several below 0");
  expect(MPI_Ibcast(data, -1, MPI_INT, 0, comm, &request) != MPI_SUCCESS, "nonblocking");
  expect(PERSISTENT(Bcast)(data, -1, MPI_INT, 0, comm, MPI_INFO_NULL, &request) != MPI_SUCCESS, "persistent");
}

static void sum(MPI_Comm comm) {
  int all = 0;
  int all_later = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_SUM, comm);
  MPI_Iallreduce(&rank, &all_later, 1, MPI_INT, MPI_SUM, comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(all == ranks * (ranks - 1) / 2 && all_later == all, "a sum");
}

/* For one call: the others make theirs when rank 0 has returned, which sends them a message. */
static void alone(MPI_Comm comm) {
  int turn = 0;
  refused(comm);
  if (rank == 0) {
    for (int peer = 1; peer < ranks; ++peer) MPI_Send(&turn, 1, MPI_INT, peer, 0, MPI_COMM_WORLD);
  } else {
    MPI_Recv(&turn, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

int main(int argc, char** argv) {
  int all_wrong = 0;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (int before = 0; before < 5; ++before) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int time = 0; time < before; ++time) MPI_Barrier(comm);
    alone(comm);
    for (int time = 0; time < 4; ++time) sum(comm);
    MPI_Comm_free(&comm);
  }
  alone(MPI_COMM_WORLD);
  sum(MPI_COMM_WORLD);
  PMPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d wrong\n", all_wrong);
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}
