/* Calls that programs may make and seldom do: buffers of no elements, arguments without meaning on this rank,
 * MPI_BOTTOM, communicators that only some ranks get, objects that are freed while a nonblocking call runs. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "extension.h"

enum { kMost = 16 };

static int rank, ranks, wrong;

static void expect(int holds, const char* what) {
  if (!holds && ++wrong < 20) fprintf(stderr, "rank %d: %s\n", rank, what);
}

static void nothing(void) {
  int counts[kMost] = {0};
  int first[1];
  int second[1];
  int all[kMost];
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Bcast(NULL, 0, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Allgather(NULL, 0, MPI_INT, NULL, 0, MPI_INT, MPI_COMM_WORLD);
  MPI_Alltoall(NULL, 0, MPI_INT, NULL, 0, MPI_INT, MPI_COMM_WORLD);
  MPI_Alltoallv(first, counts, counts, MPI_INT, second, counts, counts, MPI_INT, MPI_COMM_WORLD);
  MPI_Gatherv(NULL, 0, MPI_INT, NULL, counts, counts, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Reduce_scatter_block(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Iallreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Gather(&rank, 1, MPI_INT, rank == 0 ? all : NULL, rank == 0 ? 1 : -7, rank == 0 ? MPI_INT : MPI_DATATYPE_NULL, 0,
             MPI_COMM_WORLD);
  if (rank == 0) expect(all[ranks - 1] == ranks - 1, "gather");
  MPI_Scatter(rank == 0 ? all : NULL, rank == 0 ? 1 : -7, rank == 0 ? MPI_INT : MPI_DATATYPE_NULL,
              rank == 0 ? MPI_IN_PLACE : first, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank > 0) expect(first[0] == rank, "scatter");
}

static void bottom(void) {
  static int place[4];
  static int all[4 * kMost];
  const int length = 4;
  MPI_Aint address = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Get_address(place, &address);
  MPI_Type_create_hindexed(1, &length, &address, MPI_INT, &type);
  MPI_Type_commit(&type);
  for (int at = 0; at < 4; ++at) place[at] = rank == ranks - 1 ? at + 5 : 0;
  MPI_Bcast(MPI_BOTTOM, 1, type, ranks - 1, MPI_COMM_WORLD);
  expect(place[3] == 8, "bcast of MPI_BOTTOM");
  for (int at = 0; at < 4; ++at) place[at] = rank;
  MPI_Allgather(MPI_BOTTOM, 1, type, all, 4, MPI_INT, MPI_COMM_WORLD);
  expect(all[4 * (ranks - 1)] == ranks - 1, "allgather of MPI_BOTTOM");
  MPI_Ibcast(MPI_BOTTOM, 1, type, 0, MPI_COMM_WORLD, &request);
  MPI_Type_free(&type);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(place[2] == 0, "ibcast of MPI_BOTTOM");
}

/* A peer that enters a collective only when it has received this rank's earlier message: this rank has to continue
 * sending while it waits, in every call. */
static void sent_before(int frees) {
  enum { kBytes = 8 << 20 };
  static char big[kBytes];
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Request sent = MPI_REQUEST_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Barrier(comm);
  if (rank == 0) MPI_Isend(big, kBytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &sent);
  if (rank == 1) {
    struct timespec while_others_wait = {0, 200000000};
    nanosleep(&while_others_wait, NULL);
    MPI_Recv(big, kBytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Ibarrier(comm, &request);
  if (frees) MPI_Comm_free(&comm);
  PMPI_Wait(&request, MPI_STATUS_IGNORE); /* like MPICH's functions for mpi_f08, or the program's MPI_Wait */
  MPI_Wait(&sent, MPI_STATUS_IGNORE);
  if (!frees) MPI_Comm_free(&comm);
}

/* A peer that enters a collective only when it has received this rank's message, which is sent after the
 * communicator is freed. */
static void sent_after_free(int is_persistent) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  int result = 0;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Barrier(comm);
  /* The call that makes it may wait for other ranks, the call that frees it may not. */
  if (is_persistent) {
    PERSISTENT(Allreduce)(&rank, &result, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  }
  if (rank == 1) MPI_Recv(NULL, 0, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (is_persistent) MPI_Request_free(&request);
  MPI_Iallreduce(&rank, &result, 1, MPI_INT, MPI_SUM, comm, &request);
  MPI_Comm_free(&comm);
  if (rank == 0) MPI_Send(NULL, 0, MPI_INT, 1, 1, MPI_COMM_WORLD);
  if (rank == 2) PMPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(result == ranks * (ranks - 1) / 2, "a nonblocking call whose communicator was freed");
}

/* Ended by the program's MPI_Wait. With MPICH, persistent calls are not. Before all nonblocking calls: no earlier
 * call has brought Open MPI to the binding's function. */
static void past_the_binding(void) {
#if !defined(MPICH)
  MPI_Request request = MPI_REQUEST_NULL;
  int result = 0;
  PERSISTENT(Allreduce)(&rank, &result, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  MPI_Start(&request);
  PMPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(result == ranks * (ranks - 1) / 2, "a persistent call that ends past the binding");
  MPI_Request_free(&request);
#endif
}

/* Errors that Open MPI accepts, and the binding with MPICH, too. */
static void not_in_place(void) {
  enum { kCount = 3000 };
  static int data[kMost * kCount];
  int own = 1;
  for (int at = 0; at < ranks * kCount; ++at) data[at] = rank * 100;
  MPI_Allgather(data, kCount, MPI_INT, data, kCount, MPI_INT, MPI_COMM_WORLD);
  for (int at = 0; at < ranks; ++at)
    own = own && data[at * kCount] == at * 100 && data[(at + 1) * kCount - 1] == at * 100;
  expect(own, "allgather from where it receives");
  for (int at = 0; at < ranks * kCount; ++at) data[at] = rank * 100 + at / kCount;
  MPI_Alltoall(data, kCount, MPI_INT, data + 1, kCount, MPI_INT, MPI_COMM_WORLD);
  for (int at = 0; at < ranks; ++at) own = own && data[at * kCount + 1] == at * 100 + rank;
  expect(own, "alltoall from beside where it receives");
  for (int at = 0; at < ranks * kCount; ++at) data[at] = rank + 1;
  MPI_Gather(data, kCount, MPI_INT, data, kCount, MPI_INT, 1, MPI_COMM_WORLD);
  for (int at = 0; at < ranks; ++at) own = own && data[at * kCount] == (rank == 1 ? at : rank) + 1;
  expect(own, "gather from where it receives");
  MPI_Scatter(data, kCount, MPI_INT, data, kCount, MPI_INT, 1, MPI_COMM_WORLD);
  expect(own && data[0] == rank + 1 && data[kCount - 1] == rank + 1, "scatter to where it sends from");
}

static void world_is_not_freed(void) {
  MPI_Comm world = MPI_COMM_WORLD;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  expect(MPI_Comm_free(&world) != MPI_SUCCESS, "MPI_COMM_WORLD was freed");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  expect(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS, "MPI_COMM_WORLD goes on");
}

/* An error that MPI libraries accept: one of the ranks that write the same position wins. */
static void overlapping(void) {
  int counts[kMost];
  int displs[kMost];
  int all[2 * kMost] = {0};
  const int mine[2] = {2 * rank + 1, 2 * rank + 2};
  for (int at = 0; at < ranks; ++at) {
    counts[at] = 2;
    displs[at] = at / 2;
  }
  MPI_Allgatherv(mine, 2, MPI_INT, all, counts, displs, MPI_INT, MPI_COMM_WORLD);
  expect(all[0] > 0 && all[0] <= 2 * ranks, "allgatherv of blocks that overlap");
  expect(all[2 + (ranks - 1) / 2] == 0, "what lies behind blocks that overlap");
  all[0] = 0;
  MPI_Gatherv(mine, 2, MPI_INT, all, counts, displs, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank == 0) expect(all[0] > 0 && all[0] <= 2 * ranks, "gatherv of blocks that overlap");
}

/* The rest of the buffer is unchanged. */
static void reduce_scatter_in_place(void) {
  int counts[kMost] = {0};
  int data[kMost * (kMost + 1) / 2] = {0};
  const int total = ranks * (ranks + 1) / 2;
  for (int at = 0; at < ranks; ++at) counts[at] = at + 1;
  for (int at = 0; at < total; ++at) data[at] = rank + 1;
  MPI_Reduce_scatter(MPI_IN_PLACE, data, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  for (int at = 0; at < total; ++at) {
    expect(data[at] == (at <= rank ? ranks * (ranks + 1) / 2 : rank + 1), "reduce_scatter in place");
  }
}

static void expect_sum(MPI_Comm comm, int expected, const char* what) {
  const int one = 1;
  int sum = 0;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
  expect(sum == expected, what);
}

static void parts(void) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm inter = MPI_COMM_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  int members[kMost] = {0};
  int size = 0;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : rank % 2, -rank, &comm);
  if (rank > 0) {
    MPI_Comm_size(comm, &size);
    expect_sum(comm, size, "split");
    MPI_Comm_free(&comm);
  }
  for (int at = 0; at < ranks - 1; ++at) members[at] = ranks - 1 - at;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, ranks - 1, members, &group);
  if (rank > 0) {
    MPI_Comm_create_group(MPI_COMM_WORLD, group, 5, &comm);
    expect_sum(comm, ranks - 1, "create_group");
    MPI_Comm_free(&comm);
  }
  MPI_Comm_create(MPI_COMM_WORLD, group, &comm);
  if (rank > 0) {
    expect_sum(comm, ranks - 1, "create");
    MPI_Comm_free(&comm);
  }
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 3, &inter);
  expect_sum(inter, rank % 2 == 0 ? ranks / 2 : ranks - ranks / 2, "intercommunicator");
  MPI_Comm_dup(inter, &comm);
  MPI_Barrier(comm);
  MPI_Comm_free(&comm);
  MPI_Intercomm_merge(inter, rank % 2, &comm);
  expect_sum(comm, ranks, "merge");
  MPI_Comm_free(&comm);
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
}

/* Does not commute. */
static void append(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)type;
  for (int at = 0; at < *count; ++at) ((int*)inout)[at] += 10 * ((int*)in)[at];
}

static void freed(void) {
  MPI_Op op = MPI_OP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  const int mine = rank + 1;
  int expected = 0;
  int result = 0;
  for (int at = 1; at <= ranks; ++at) expected = 10 * expected + at;
  MPI_Op_create(append, 0, &op);
  MPI_Allreduce(&mine, &result, 1, MPI_INT, op, MPI_COMM_WORLD);
  expect(result == expected, "an operator of the program");
  result = 0;
  MPI_Iallreduce(&mine, &result, 1, MPI_INT, op, MPI_COMM_WORLD, &request);
  MPI_Op_free(&op);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(result == expected, "an operator that is freed");
  for (int at = 0; at < 20; ++at) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Barrier(comm); /* from then on tutti serves it: Open MPI 4.1 does not survive this */
    MPI_Iallreduce(&mine, &result, 1, MPI_INT, MPI_SUM, comm, &request);
    MPI_Comm_free(&comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(result == ranks * (ranks + 1) / 2, "a communicator that is freed");
  }
  /* Left to MPI_Finalize. */
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  expect_sum(comm, ranks, "dup");
}

int main(int argc, char** argv) {
  int all_wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Barrier(MPI_COMM_WORLD);
  past_the_binding();
  nothing();
  bottom();
  overlapping();
  sent_before(1);
  sent_before(0);
  sent_after_free(0);
  sent_after_free(1);
  not_in_place();
  world_is_not_freed();
  reduce_scatter_in_place();
  parts();
  freed();
  PMPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d wrong\n", all_wrong);
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}
