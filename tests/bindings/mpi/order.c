/* Persistent collectives of every form, which the ranks start in different orders: MPI orders only the calls that
 * make them. Between the starts, at different points on each rank, blocking and nonblocking calls, which have one
 * order. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "extension.h"

enum { kForms = 17, kEach = 2, kRequests = kForms * kEach, kTimes = 3, kMost = 16 };

typedef long long Number;

static int rank, ranks, wrong;
static int length; /* elements of a block */
static MPI_Comm comm;
static Number* sent[kRequests];
static Number* received[kRequests];
static MPI_Request requests[kRequests];
static int counts[kMost], displs[kMost], byte_displs[kMost];
static MPI_Datatype types[kMost];

static void expect(int holds, const char* what, int at) {
  if (!holds && ++wrong < 20) fprintf(stderr, "rank %d: %s, request %d, blocks of %d\n", rank, what, at, length);
}

static unsigned drawn;
static int draw(int below) {
  drawn = drawn * 1103515245u + 12345u;
  return (int)(drawn / 65536u % (unsigned)below);
}

/* The message of `from` to `to`. */
static Number value(int at, int from, int to, int element, int time) {
  return 1000003LL * at + 10007LL * from + 101LL * to + element % 97 + 7LL * time;
}

static int root_of(int at) {
  return at % ranks;
}

static void make(int at) {
  Number* const s = sent[at];
  Number* const r = received[at];
  MPI_Request* const q = &requests[at];
  const int n = length;
  const int root = root_of(at);
  const MPI_Info info = MPI_INFO_NULL;
  const MPI_Datatype type = MPI_LONG_LONG;
  switch (at % kForms) {
    case 0: PERSISTENT(Bcast)(r, n, type, root, comm, info, q); break;
    case 1: PERSISTENT(Allreduce)(s, r, n, type, MPI_SUM, comm, info, q); break;
    case 2: PERSISTENT(Alltoall)(s, n, type, r, n, type, comm, info, q); break;
    case 3: PERSISTENT(Gather)(s, n, type, r, n, type, root, comm, info, q); break;
    case 4: PERSISTENT(Scatter)(s, n, type, r, n, type, root, comm, info, q); break;
    case 5: PERSISTENT(Allgather)(s, n, type, r, n, type, comm, info, q); break;
    case 6: PERSISTENT(Reduce)(s, r, n, type, MPI_SUM, root, comm, info, q); break;
    case 7: PERSISTENT(Reduce_scatter_block)(s, r, n, type, MPI_SUM, comm, info, q); break;
    case 8: PERSISTENT(Scan)(s, r, n, type, MPI_SUM, comm, info, q); break;
    case 9: PERSISTENT(Exscan)(s, r, n, type, MPI_SUM, comm, info, q); break;
    case 10: PERSISTENT(Gatherv)(s, counts[rank], type, r, counts, displs, type, root, comm, info, q); break;
    case 11: PERSISTENT(Scatterv)(s, counts, displs, type, r, counts[rank], type, root, comm, info, q); break;
    case 12: PERSISTENT(Allgatherv)(s, counts[rank], type, r, counts, displs, type, comm, info, q); break;
    case 13: PERSISTENT(Barrier)(comm, info, q); break;
    case 14: {
      int from[kMost], to[kMost];
      for (int peer = 0; peer < ranks; ++peer) from[peer] = counts[rank], to[peer] = counts[peer];
      PERSISTENT(Alltoallv)(s, from, displs, type, r, to, displs, type, comm, info, q);
      break;
    }
    case 15: {
      int from[kMost], to[kMost];
      for (int peer = 0; peer < ranks; ++peer) from[peer] = counts[rank], to[peer] = counts[peer];
      PERSISTENT(Alltoallw)(s, from, byte_displs, types, r, to, byte_displs, types, comm, info, q);
      break;
    }
    default: {
      int blocks[kMost];
      for (int peer = 0; peer < ranks; ++peer) blocks[peer] = n;
      PERSISTENT(Reduce_scatter)(s, r, blocks, type, MPI_SUM, comm, info, q);
    }
  }
}

static void fill(int at, int time) {
  for (int to = 0; to < ranks; ++to) {
    for (int i = 0; i < length; ++i) {
      sent[at][to * length + i] = value(at, rank, to, i, time);
      received[at][to * length + i] = -1;
    }
  }
  if (at % kForms != 0 || rank != root_of(at)) return;
  for (int i = 0; i < length; ++i) received[at][i] = value(at, rank, 0, i, time);
}

/* The blocks of all ranks for `to`, with these numbers of elements; NULL: with full length. */
static void expect_blocks(int at, int to, const int* elements, int time) {
  for (int from = 0; from < ranks; ++from) {
    const int n = elements == NULL ? length : elements[from];
    for (int i = 0; i < length; ++i) {
      const Number is = received[at][from * length + i];
      expect(is == (i < n ? value(at, from, to, i, time) : -1), "blocks", at);
    }
  }
}

static void expect_block(int at, int from, int to, int n, int time) {
  for (int i = 0; i < n; ++i) expect(received[at][i] == value(at, from, to, i, time), "a block", at);
  expect(n == length || received[at][n] == -1, "behind a block", at);
}

/* For the ranks below `end`. */
static void expect_sum(int at, int end, int to, int time) {
  for (int i = 0; i < length; ++i) {
    Number sum = 0;
    for (int from = 0; from < end; ++from) sum += value(at, from, to, i, time);
    expect(received[at][i] == sum, "a sum", at);
  }
}

static void check(int at, int time) {
  const int root = root_of(at);
  switch (at % kForms) {
    case 0: expect_block(at, root, 0, length, time); break;
    case 1: expect_sum(at, ranks, 0, time); break;
    case 2: expect_blocks(at, rank, NULL, time); break;
    case 3:
      if (rank == root) expect_blocks(at, 0, NULL, time);
      break;
    case 4: expect_block(at, root, rank, length, time); break;
    case 5: expect_blocks(at, 0, NULL, time); break;
    case 6:
      if (rank == root) expect_sum(at, ranks, 0, time);
      break;
    case 8: expect_sum(at, rank + 1, 0, time); break;
    case 9:
      if (rank > 0) expect_sum(at, rank, 0, time);
      break;
    case 10:
      if (rank == root) expect_blocks(at, 0, counts, time);
      break;
    case 11: expect_block(at, root, rank, counts[rank], time); break;
    case 12: expect_blocks(at, 0, counts, time); break;
    case 13: break;
    case 14:
    case 15: expect_blocks(at, rank, counts, time); break;
    default: expect_sum(at, ranks, rank, time);
  }
}

/* Calls that all ranks make in one order. */
static void others(MPI_Request* later, Number* later_sum, int time) {
  Number mine = rank + time;
  Number sum = 0;
  static Number all[kMost];
  static Number own;
  own = rank;
  MPI_Allreduce(&mine, &sum, 1, MPI_LONG_LONG, MPI_SUM, comm);
  expect(sum == (Number)ranks * (ranks - 1) / 2 + (Number)ranks * time, "a blocking call", -1);
  *later_sum = 0;
  MPI_Iallreduce(&own, later_sum, 1, MPI_LONG_LONG, MPI_SUM, comm, later);
  MPI_Allgather(&mine, 1, MPI_LONG_LONG, all, 1, MPI_LONG_LONG, comm);
  for (int from = 0; from < ranks; ++from) expect(all[from] == from + time, "another blocking call", -1);
}

static void start(int* order, int number, int together) {
  MPI_Request some[kRequests];
  for (int i = 0; i < number; ++i) some[i] = requests[order[i]];
  if (together) {
    MPI_Startall(number, some);
  } else {
    for (int i = 0; i < number; ++i) MPI_Start(&some[i]);
  }
}

static void shuffle(int* order, int number) {
  for (int at = 0; at < number; ++at) order[at] = at;
  for (int at = number - 1; at > 0; --at) {
    const int other = draw(at + 1);
    const int kept = order[at];
    order[at] = order[other];
    order[other] = kept;
  }
}

static void run(int elements, int number) {
  int order[kRequests];
  MPI_Request later = MPI_REQUEST_NULL;
  MPI_Status statuses[kRequests];
  Number later_sum = 0;
  length = elements;
  for (int peer = 0; peer < ranks; ++peer) {
    counts[peer] = length - peer % 2;
    displs[peer] = peer * length;
    byte_displs[peer] = displs[peer] * (int)sizeof(Number);
    types[peer] = MPI_LONG_LONG;
  }
  for (int at = 0; at < number; ++at) {
    sent[at] = malloc((size_t)ranks * (size_t)length * sizeof(Number));
    received[at] = malloc((size_t)ranks * (size_t)length * sizeof(Number));
    make(at);
  }
  for (int time = 0; time < kTimes; ++time) {
    int first = 0;
    for (int at = 0; at < number; ++at) fill(at, time);
    shuffle(order, number);
    first = draw(number + 1);
    start(order, first, time % 2);
    others(&later, &later_sum, time);
    start(order + first, number - first, time != 1);
    MPI_Wait(&later, MPI_STATUS_IGNORE);
    expect(later_sum == (Number)ranks * (ranks - 1) / 2, "a nonblocking call", -1);
    MPI_Waitall(number, requests, statuses);
    for (int at = 0; at < number; ++at) check(at, time);
  }
  shuffle(order, number);
  for (int at = 0; at < number; ++at) {
    MPI_Request_free(&requests[order[at]]);
    free(sent[order[at]]);
    free(received[order[at]]);
  }
}

int main(int argc, char** argv) {
  int all_wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  drawn = 77u * (unsigned)rank + 1u;
  comm = MPI_COMM_WORLD;
  run(1, kRequests);
  run(3000, kRequests);
  /* 512 KiB: of three forms. The requests are the first of two of each form. */
  run(65536, 3);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
  MPI_Comm_rank(comm, &rank);
  run(1000, kRequests);
  MPI_Comm_free(&comm);
  PMPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) printf("%d wrong\n", all_wrong);
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}
