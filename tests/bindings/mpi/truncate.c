/* Ranks that send more than others receive: MPI_ERR_TRUNCATE on the receiver, and nothing is written behind the
 * receive buffer. In every form, of every length. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "extension.h"

enum { kMost = 16, kUntouched = -7 };
enum Form { kBlocking, kNonblocking, kPersistent, kForms };
static const char* const form_names[] = {"blocking", "nonblocking", "persistent"};

static int rank, ranks, wrong;
static enum Form form;
static MPI_Comm comm;
static const char* what;
static int length;
static int *sent, *received;
static int capacity;

static void expect(int holds, const char* claim) {
  if (holds || ++wrong >= 20) return;
  fprintf(stderr, "rank %d: %s, %s, blocks of %d: %s\n", rank, what, form_names[form], length, claim);
}

static int class_of(int error) {
  int kind = MPI_SUCCESS;
  MPI_Error_class(error, &kind);
  return kind;
}

static int completed(int error, MPI_Request* request) {
  if (error != MPI_SUCCESS) return error;
  if (form == kPersistent) error = MPI_Start(request);
  if (error == MPI_SUCCESS) error = MPI_Wait(request, MPI_STATUS_IGNORE);
  if (form == kPersistent) MPI_Request_free(request);
  return error;
}

#define CALL(NAME, LOWER, ...)                                                             \
  (form == kBlocking      ? MPI_##NAME(__VA_ARGS__, comm)                                  \
   : form == kNonblocking ? completed(MPI_I##LOWER(__VA_ARGS__, comm, &request), &request) \
                          : completed(PERSISTENT(NAME)(__VA_ARGS__, comm, MPI_INFO_NULL, &request), &request))

/* A separate communicator, which tutti serves, because some of the errors end it. */
static void begin(const char* name) {
  what = name;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Barrier(comm);
  for (int at = 0; at < capacity; ++at) {
    sent[at] = 1000 * rank + at % 100;
    received[at] = kUntouched;
  }
}

enum Expected { kAny, kTruncated };

/* Checks the error, and that nothing is written from element `room` on. */
static void check(int error, enum Expected expected, int room) {
  int touched = 0;
  const int kind = class_of(error);
  expect(kind == MPI_ERR_TRUNCATE || (expected == kAny && kind == MPI_SUCCESS), "the class of the error");
  for (int at = room; at < capacity; ++at) touched += received[at] != kUntouched;
  expect(touched == 0, "elements behind the receive buffer are written");
}

static void end(int usable) {
  int sum = 0;
  if (usable) {
    expect(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS && sum == ranks * (ranks - 1) / 2,
           "a call after it");
  }
  MPI_Comm_free(&comm);
}

static void fill(int* numbers, int value) {
  for (int at = 0; at < kMost; ++at) numbers[at] = value;
}

static void step(int* displs, int by) {
  for (int at = 0; at < kMost; ++at) displs[at] = at * by;
}

/* All ranks send `n`, and have room for `less` from each. */
static void of_all(int n, int less) {
  MPI_Request request = MPI_REQUEST_NULL;
  const MPI_Datatype type = MPI_INT;
  const int root = ranks - 1;
  int send_counts[kMost], recv_counts[kMost], send_displs[kMost], recv_displs[kMost];
  fill(send_counts, n);
  fill(recv_counts, less);
  step(send_displs, n);
  step(recv_displs, less);
  begin("gather");
  check(CALL(Gather, gather, sent, n, type, received, rank == root ? less : n, type, root),
        rank == root ? kTruncated : kAny, rank == root ? ranks * less : 0);
  end(1);
  begin("allgather");
  check(CALL(Allgather, allgather, sent, n, type, received, less, type), kTruncated, ranks * less);
  end(1);
  begin("alltoall");
  check(CALL(Alltoall, alltoall, sent, n, type, received, less, type), kTruncated, ranks * less);
  end(1);
  begin("gatherv");
  check(CALL(Gatherv, gatherv, sent, n, type, received, recv_counts, recv_displs, type, root),
        rank == root ? kTruncated : kAny, rank == root ? ranks * less : 0);
  end(1);
  begin("allgatherv");
  check(CALL(Allgatherv, allgatherv, sent, n, type, received, recv_counts, recv_displs, type), kTruncated,
        ranks * less);
  end(1);
  begin("alltoallv");
  check(CALL(Alltoallv, alltoallv, sent, send_counts, send_displs, type, received, recv_counts, recv_displs, type),
        kTruncated, ranks * less);
  end(1);
  if (less == 0) return; /* a rank that receives nothing takes no part: the others hear of it at its next call */
  begin("scatter");
  check(CALL(Scatter, scatter, sent, n, type, received, less, type, root), kTruncated, less);
  end(0);
  begin("scatterv");
  check(CALL(Scatterv, scatterv, sent, send_counts, send_displs, type, received, less, type, root), kTruncated, less);
  end(0);
}

/* Only some ranks are wrong. */
static void of_some(int n, int less) {
  MPI_Request request = MPI_REQUEST_NULL;
  const MPI_Datatype type = MPI_INT;
  const int root = 0;
  int counts[kMost], displs[kMost];
  step(displs, n);
  begin("bcast");
  check(CALL(Bcast, bcast, received, rank == root ? n : less, type, root), rank == root ? kAny : kTruncated,
        rank == root ? n : less);
  end(0);
  begin("gather in place");
  check(CALL(Gather, gather, rank == root ? MPI_IN_PLACE : sent, n, type, received, less, type, root),
        rank == root ? kTruncated : kAny, rank == root ? ranks * less : 0);
  end(0);
  begin("scatter in place");
  check(CALL(Scatter, scatter, sent, n, type, rank == root ? MPI_IN_PLACE : received, less, type, root),
        rank == root ? kAny : kTruncated, rank == root ? 0 : less);
  end(0);
  begin("allgather of one that sends more");
  check(CALL(Allgather, allgather, sent, rank == root ? n : less, type, received, less, type), kTruncated,
        ranks * less);
  end(0);
  begin("allgatherv of one that sends more");
  fill(counts, less);
  check(CALL(Allgatherv, allgatherv, sent, rank == root ? n : less, type, received, counts, displs, type), kTruncated,
        (ranks - 1) * n + less);
  end(0);
  begin("gatherv of one that sends more");
  check(CALL(Gatherv, gatherv, sent, rank == 1 ? n : less, type, received, counts, displs, type, root),
        rank == root ? kTruncated : kAny, rank == root ? (ranks - 1) * n + less : 0);
  end(0);
  begin("alltoallv of one that sends more to another");
  if (rank == root) counts[1] = n;
  {
    int own[kMost];
    fill(own, less);
    check(CALL(Alltoallv, alltoallv, sent, counts, displs, type, received, own, displs, type),
          rank == 1 ? kTruncated : kAny, (ranks - 1) * n + less);
  }
  end(0);
}

/* Of ints with holes between them, into ints with holes. */
static void with_holes(int n, int less) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Datatype every_other = MPI_DATATYPE_NULL;
  MPI_Datatype pair = MPI_DATATYPE_NULL;
  int touched = 0;
  MPI_Type_vector(1, 1, 2, MPI_INT, &pair);
  MPI_Type_create_resized(pair, 0, 2 * (MPI_Aint)sizeof(int), &every_other);
  MPI_Type_commit(&every_other);
  begin("allgather with holes");
  check(CALL(Allgather, allgather, sent, n, every_other, received, less, every_other), kTruncated, 2 * ranks * less);
  for (int at = 0; at < ranks * less; ++at) touched += received[2 * at + 1] != kUntouched;
  expect(touched == 0, "holes are written");
  for (int at = 0; at < less; ++at) {
    expect(received[2 * ((ranks - 1) * less + at)] == 1000 * (ranks - 1) + 2 * at % 100, "what there is room for");
  }
  end(1);
  begin("gather with holes");
  check(CALL(Gather, gather, sent, n, MPI_INT, received, less, every_other, 0), rank == 0 ? kTruncated : kAny,
        rank == 0 ? 2 * ranks * less : 0);
  end(1);
  MPI_Type_free(&pair);
  MPI_Type_free(&every_other);
}

int main(int argc, char** argv) {
  static const int lengths[][2] = {{2, 1}, {10, 0}, {20000, 300}, {262144, 262143}};
  int all_wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (size_t at = 0; at < sizeof lengths / sizeof lengths[0]; ++at) {
    const int n = lengths[at][0];
    length = n;
    capacity = 2 * ranks * n + 100;
    sent = malloc((size_t)capacity * sizeof(int));
    received = malloc((size_t)capacity * sizeof(int));
    for (form = kBlocking; form < kForms; ++form) {
      of_all(n, lengths[at][1]);
      if (lengths[at][1] > 0) of_some(n, lengths[at][1]);
      with_holes(n, lengths[at][1]);
    }
    free(sent);
    free(received);
  }
  PMPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d wrong\n", all_wrong);
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}
