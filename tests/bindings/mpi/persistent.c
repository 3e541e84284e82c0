/* Persistent collectives beside persistent sends and receives: started often, with other data each time, completed
 * in every way; their datatypes, arrays and communicators are freed before, which Open MPI 4.1 and MPICH 4.0 do not
 * survive. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "extension.h"

enum { kCount = 3000, kRequests = 7, kTimes = 14, kMost = 16 };

static int rank, ranks, wrong;
static int data[kCount], sums[kCount], all[kMost * kCount], strided[3 * kCount], sent, from_left;
static double scanned, one;

static void expect(int holds, const char* what) {
  if (!holds && ++wrong < 20) fprintf(stderr, "rank %d: %s\n", rank, what);
}

/* Waits for the active requests. */
static void complete(int how, MPI_Request* requests) {
  MPI_Status statuses[kRequests];
  int indices[kRequests];
  int index = 0;
  int flag = 0;
  int done = 0;
  switch (how % 7) {
    case 0: MPI_Waitall(kRequests, requests, statuses); break;
    case 1:
      for (int at = kRequests - 1; at >= 0; --at) MPI_Wait(&requests[at], &statuses[at]);
      break;
    case 2:
      for (int at = 0; at < kRequests; ++at) {
        for (flag = 0; !flag;) MPI_Request_get_status(requests[at], &flag, MPI_STATUS_IGNORE);
        for (flag = 0; !flag;) MPI_Test(&requests[at], &flag, MPI_STATUS_IGNORE);
      }
      break;
    case 3:
      for (int at = 0; at < kRequests; ++at) {
        MPI_Waitany(kRequests, requests, &index, MPI_STATUS_IGNORE);
        expect(index >= 0 && index < kRequests, "the index of waitany");
      }
      MPI_Waitany(kRequests, requests, &index, MPI_STATUS_IGNORE);
      expect(index == MPI_UNDEFINED, "the index of waitany without an active request");
      break;
    case 4:
      for (int sum = 0; sum < kRequests; sum += done) MPI_Waitsome(kRequests, requests, &done, indices, statuses);
      break;
    case 5:
      while (!flag) MPI_Testall(kRequests, requests, &flag, statuses);
      break;
    default:
      for (int sum = 0; sum < kRequests;) {
        MPI_Testany(kRequests, requests, &index, &flag, MPI_STATUS_IGNORE);
        if (flag && index != MPI_UNDEFINED) ++sum;
        MPI_Testsome(kRequests, requests, &done, indices, statuses);
        if (done != MPI_UNDEFINED) sum += done;
      }
      break;
  }
}

static void check(int time, int root) {
  for (int at = 0; at < kCount; ++at) {
    expect(sums[at] == ranks * (ranks - 1) / 2 + ranks * (at % 10 + time), "allreduce");
    expect(all[(ranks - 1) * kCount + at] == ranks - 1 + at % 10 + time, "allgatherv");
    expect(strided[3 * at] == 3 * at + time, "bcast");
    expect(strided[3 * at + 1] == (rank == root ? 3 * at + 1 + time : -1), "bcast has written into a hole");
  }
  expect(scanned == (rank + 1) * (time + 1), "scan");
  expect(from_left == (rank + ranks - 1) % ranks + time, "receive");
}

static void start_often(void) {
  MPI_Request requests[kRequests];
  MPI_Status statuses[kRequests];
  MPI_Datatype every_third = MPI_DATATYPE_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  const int root = ranks - 1;
  int counts[kMost];
  int displs[kMost];
  for (int at = 0; at < ranks; ++at) {
    counts[at] = kCount;
    displs[at] = at * kCount;
  }
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Type_vector(kCount, 1, 3, MPI_INT, &every_third);
  MPI_Type_commit(&every_third);
  MPI_Recv_init(&from_left, 1, MPI_INT, (rank + ranks - 1) % ranks, 1, comm, &requests[0]);
  PERSISTENT(Allreduce)(data, sums, kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[1]);
  PERSISTENT(Allgatherv)
  (data, kCount, MPI_INT, all, counts, displs, MPI_INT, comm, MPI_INFO_NULL, &requests[2]);
  PERSISTENT(Bcast)(strided, 1, every_third, root, comm, MPI_INFO_NULL, &requests[3]);
  MPI_Send_init(&sent, 1, MPI_INT, (rank + 1) % ranks, 1, comm, &requests[4]);
  PERSISTENT(Scan)(&one, &scanned, 1, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &requests[5]);
  PERSISTENT(Barrier)(comm, MPI_INFO_NULL, &requests[6]);
  /* Completing an inactive request is not an error. */
  MPI_Waitall(kRequests, requests, statuses);
  for (int time = 0; time < kTimes; ++time) {
    for (int at = 0; at < kCount; ++at) data[at] = rank + at % 10 + time;
    for (int at = 0; at < 3 * kCount; ++at) strided[at] = rank == root ? at + time : -1;
    memset(sums, 0, sizeof sums);
    memset(all, 0, sizeof all);
    one = time + 1;
    sent = rank + time;
    if (time % 2 == 0) {
      MPI_Startall(kRequests, requests);
    } else {
      for (int at = 0; at < kRequests; ++at) MPI_Start(&requests[at]);
    }
    /* Objects freed now may still be used by running requests, and by later starts. */
    if (time == 0) MPI_Type_free(&every_third);
    complete(time, requests);
    check(time, root);
    for (int at = 0; at < kRequests; ++at) expect(requests[at] != MPI_REQUEST_NULL, "a request is gone");
  }
  for (int at = 0; at < kRequests; ++at) MPI_Request_free(&requests[at]);
  for (int at = 0; at < kRequests; ++at) expect(requests[at] == MPI_REQUEST_NULL, "a request is left");
  MPI_Comm_free(&comm);
}

/* Communicators whose handles are freed. */
static void outlive(void) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request requests[2];
  int sum = 0;
  int again = 0;
  for (int time = 0; time < 20; ++time) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    PERSISTENT(Allreduce)(&rank, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[0]);
    PERSISTENT(Allreduce)(&sum, &again, 1, MPI_INT, MPI_MAX, comm, MPI_INFO_NULL, &requests[1]);
    if (time % 2 == 0) MPI_Comm_free(&comm);
    for (int start = 0; start < 3; ++start) {
      sum = -1;
      MPI_Start(&requests[0]);
      MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
      expect(sum == ranks * (ranks - 1) / 2, "of a communicator that is freed");
      MPI_Start(&requests[1]);
      MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
      expect(again == sum, "another of a communicator that is freed");
    }
    MPI_Request_free(&requests[1]);
    MPI_Request_free(&requests[0]);
    if (time % 2 == 1) MPI_Comm_free(&comm);
  }
  /* Left to MPI_Finalize. */
  PERSISTENT(Allreduce)(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
}

/* Functions of an attribute of MPI_COMM_SELF, by which programs notice MPI_Finalize: the binding's use of that
 * communicator must not call them. */
static int attribute_calls;

static int on_copy(MPI_Comm comm, int keyval, void* extra, void* value, void* copy, int* copies) {
  (void)comm, (void)keyval, (void)extra;
  *(void**)copy = value;
  *copies = 1;
  ++attribute_calls;
  return MPI_SUCCESS;
}

static int on_delete(MPI_Comm comm, int keyval, void* value, void* extra) {
  (void)comm, (void)keyval, (void)value, (void)extra;
  ++attribute_calls;
  return MPI_SUCCESS;
}

int main(int argc, char** argv) {
  int all_wrong = 0;
  int keyval = MPI_KEYVAL_INVALID;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_create_keyval(on_copy, on_delete, &keyval, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, keyval, &attribute_calls);
  start_often();
  outlive();
  expect(attribute_calls == 0, "an attribute of MPI_COMM_SELF was copied or deleted");
  PMPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d wrong\n", all_wrong);
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}
