/* A rank that makes a known number of calls of each kind, and then waits for a byte on its standard input. Usage:
 * metrics_rank LATE: rank LATE comes three seconds late to the last call. metrics_test.py knows the numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { kLarge = 65536, kRanks = 4 };

#define CHECK(call) \
  if ((call) != tuttiSuccess) return fprintf(stderr, "%s: %s\n", #call, tuttiGetLastError(NULL)), 1

static float values[kLarge];
static float all[kRanks * 100];

static int run(tuttiComm_t comm, int rank, int late) {
  const size_t counts[kRanks] = {10, 20, 30, 40};
  const int next = (rank + 1) % kRanks;
  const int before = (rank + kRanks - 1) % kRanks;
  tuttiStream_t stream = NULL;
  for (int i = 0; i < 20; ++i) CHECK(tuttiAllReduce(values, values, 2, tuttiFloat32, tuttiSum, comm, NULL));
  for (int i = 0; i < 5; ++i) CHECK(tuttiAllReduce(values, values, kLarge, tuttiFloat32, tuttiSum, comm, NULL));
  for (int i = 0; i < 4; ++i) CHECK(tuttiAllReduce(values, values, 0, tuttiFloat32, tuttiSum, comm, NULL));
  for (int i = 0; i < 3; ++i) CHECK(tuttiAllGather(values, all, 100, tuttiFloat32, comm, NULL));
  for (int i = 0; i < 2; ++i) CHECK(tuttiBarrier(comm, NULL));
  for (int i = 0; i < 2; ++i) {
    CHECK(tuttiAllGatherV(values, counts[rank], all, counts, NULL, tuttiFloat32, comm, NULL));
  }
  CHECK(tuttiGroupStart());
  for (int i = 0; i < 3; ++i) {
    CHECK(tuttiAllReduce(values + 2 * i, values + 2 * i, 2, tuttiFloat32, tuttiSum, comm, NULL));
  }
  CHECK(tuttiGroupEnd());
  CHECK(tuttiStreamCreate(&stream));
  for (int i = 0; i < 6; ++i) CHECK(tuttiAllReduce(values, values, 2, tuttiFloat32, tuttiSum, comm, stream));
  CHECK(tuttiStreamDestroy(stream));
  for (int i = 0; i < 7; ++i) {
    CHECK(tuttiGroupStart());
    CHECK(tuttiSend(values, 100, tuttiFloat32, next, comm, NULL));
    CHECK(tuttiRecv(all, 100, tuttiFloat32, before, comm, NULL));
    CHECK(tuttiGroupEnd());
  }
  if (rank == late) sleep(3);
  CHECK(tuttiAllReduce(values, values, 2, tuttiFloat32, tuttiSum, comm, NULL));
  return 0;
}

int main(int argc, char** argv) {
  tuttiComm_t comm = NULL;
  int rank = 0;
  if (argc != 2) return 2;
  CHECK(tuttiCommInitEnv(&comm, NULL));
  CHECK(tuttiCommUserRank(comm, &rank));
  if (run(comm, rank, atoi(argv[1])) != 0) return 1;
  if (chdir("/") != 0) return 1;
  getchar();
  CHECK(tuttiCommDestroy(comm));
  return 0;
}
