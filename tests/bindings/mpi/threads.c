/* MPI_THREAD_MULTIPLE: threads with communicators of their own, at the same time; blocking and nonblocking. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

enum { kThreads = 3, kRounds = 200, kCount = 300 };

static int rank, ranks;

typedef struct {
  MPI_Comm comm;
  int wrong;
} Share;

static void* work(void* argument) {
  Share* share = (Share*)argument;
  double in[kCount], out[kCount];
  MPI_Request request = MPI_REQUEST_NULL;
  for (int round = 0; round < kRounds; ++round) {
    for (int at = 0; at < kCount; ++at) in[at] = rank + round;
    MPI_Allreduce(in, out, kCount, MPI_DOUBLE, MPI_SUM, share->comm);
    if (out[round % kCount] != ranks * round + ranks * (ranks - 1) / 2) ++share->wrong;
    MPI_Iallreduce(in, out, kCount, MPI_DOUBLE, MPI_MAX, share->comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (out[round % kCount] != ranks - 1 + round) ++share->wrong;
  }
  return NULL;
}

int main(int argc, char** argv) {
  Share shares[kThreads];
  pthread_t threads[kThreads];
  int provided = 0;
  int wrong = 0;
  int all_wrong = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (provided < MPI_THREAD_MULTIPLE) {
    if (rank == 0) printf("no MPI_THREAD_MULTIPLE\n");
    MPI_Finalize();
    return 77;
  }
  for (int at = 0; at < kThreads; ++at) {
    shares[at].wrong = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &shares[at].comm);
  }
  for (int at = 0; at < kThreads; ++at) pthread_create(&threads[at], NULL, work, &shares[at]);
  for (int at = 0; at < kThreads; ++at) {
    pthread_join(threads[at], NULL);
    wrong += shares[at].wrong;
    MPI_Comm_free(&shares[at].comm);
  }
  PMPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d wrong\n", all_wrong);
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}
