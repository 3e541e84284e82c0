/* Nonblocking calls around the length from which tutti serves them, counted in bytes that move, for every layout on
 * a rank; two of them and a barrier in flight at the same time. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kShort = 100, kLong = 40000, kMost = 8 };

static int rank, ranks, wrong;

static void expect(int holds, const char* what) {
  if (!holds && ++wrong < 20) fprintf(stderr, "rank %d: %s\n", rank, what);
}

/* On every second rank the elements have a stride of two. */
static void broadcast(int count) {
  int* buffer = calloc(2 * (size_t)count, sizeof *buffer);
  MPI_Datatype apart = MPI_DATATYPE_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  const int step = rank % 2 + 1;
  MPI_Type_vector(count, 1, step, MPI_INT, &apart);
  MPI_Type_commit(&apart);
  if (rank == ranks - 1) {
    for (int i = 0; i < count; ++i) buffer[i * step] = i + 1;
  }
  MPI_Ibcast(buffer, 1, apart, ranks - 1, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(buffer[(count - 1) * step] == count && buffer[0] == 1, "a broadcast");
  MPI_Type_free(&apart);
  free(buffer);
}

static void reduce(int count) {
  int* send = malloc(sizeof *send * (size_t)count * kMost);
  int* sum = malloc(sizeof *sum * (size_t)count);
  int* all = malloc(sizeof *all * (size_t)count * kMost);
  MPI_Request requests[3];
  MPI_Status statuses[3];
  for (int i = 0; i < count * ranks; ++i) send[i] = i + rank;
  MPI_Iallreduce(send, sum, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
  MPI_Iallgather(send, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD, &requests[1]);
  MPI_Ibarrier(MPI_COMM_WORLD, &requests[2]);
  MPI_Waitall(3, requests, statuses);
  for (int i = 0; i < count; i += 13) {
    expect(sum[i] == ranks * i + ranks * (ranks - 1) / 2, "an all-reduce");
    for (int r = 0; r < ranks; ++r) expect(all[r * count + i] == i + r, "an all-gather");
  }
  MPI_Ialltoall(send, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD, &requests[0]);
  MPI_Ireduce_scatter_block(send, sum, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[1]);
  MPI_Waitall(2, requests, statuses);
  for (int r = 0; r < ranks; ++r) expect(all[r * count] == rank * count + r, "an all-to-all");
  expect(sum[0] == ranks * rank * count + ranks * (ranks - 1) / 2, "a reduce-scatter");
  free(send);
  free(sum);
  free(all);
}

static void collect(int count, int root) {
  int* mine = malloc(sizeof *mine * (size_t)count);
  int* all = malloc(sizeof *all * (size_t)count * kMost);
  int* own = malloc(sizeof *own * (size_t)count);
  MPI_Request request = MPI_REQUEST_NULL;
  for (int i = 0; i < count; ++i) mine[i] = i * 3 + rank;
  MPI_Igather(mine, count, MPI_INT, rank == root ? all : NULL, count, MPI_INT, root, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (int r = 0; rank == root && r < ranks; ++r) expect(all[r * count + 1] == 3 + r, "a gather");
  MPI_Iscatter(rank == root ? all : NULL, count, MPI_INT, own, count, MPI_INT, root, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(own[count - 1] == mine[count - 1], "a scatter");
  free(mine);
  free(all);
  free(own);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int round = 0; round < 3; ++round) {
    broadcast(kShort);
    broadcast(kLong);
    reduce(kShort);
    reduce(kLong);
    collect(kShort, round % ranks);
    collect(kLong, round % ranks);
  }
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
