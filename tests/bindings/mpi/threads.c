/* MPI_THREAD_MULTIPLE: threads with separate communicators, at the same time; blocking and nonblocking. A thread
 * that waits for a failing call while another one frees the communicator. */
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

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

static atomic_int handling;

/* Is slow: until it returns the call has not ended. */
static void on_error(MPI_Comm* comm, int* error, ...) {
  const struct timespec while_the_other_waits = {0, 20000000};
  (void)comm;
  (void)error;
  atomic_store(&handling, 1);
  nanosleep(&while_the_other_waits, NULL);
}

static void wait_until(atomic_int* flag) {
  while (!atomic_load(flag)) {
    const struct timespec a_while = {0, 100000};
    nanosleep(&a_while, NULL);
  }
}

static atomic_int freed;

typedef struct {
  MPI_Request request;
  int how;
  int when_freed;
  int error;
} Waiting;

static void* wait_meanwhile(void* argument) {
  Waiting* waiting = (Waiting*)argument;
  MPI_Status status;
  int flag = 0;
  if (waiting->when_freed) wait_until(&freed);
  if (waiting->how == 0) waiting->error = MPI_Wait(&waiting->request, &status);
  if (waiting->how == 1) {
    while (!flag) waiting->error = MPI_Test(&waiting->request, &flag, &status);
  }
  if (waiting->how == 2) {
    status.MPI_ERROR = MPI_SUCCESS;
    waiting->error = MPI_Waitall(1, &waiting->request, &status);
  }
  return NULL;
}

/* The ranks call different collectives. The waiting thread gets the error, if the communicator is freed before the
 * error, and if it is freed while the error handler runs. */
static int freed_meanwhile(int how, int before) {
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  Waiting waiting = {MPI_REQUEST_NULL, how, before, MPI_SUCCESS};
  pthread_t thread;
  int sum = 0;
  atomic_store(&handling, 0);
  atomic_store(&freed, 0);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_create_errhandler(on_error, &handler);
  MPI_Comm_set_errhandler(comm, handler);
  MPI_Errhandler_free(&handler);
  MPI_Barrier(comm);
  /* The call of rank 0 is the last, so that no other call finds the communicator failed. */
  if (rank != 0) MPI_Ibarrier(comm, &waiting.request);
  PMPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm, &waiting.request);
  pthread_create(&thread, NULL, wait_meanwhile, &waiting);
  if (!before) wait_until(&handling);
  MPI_Comm_free(&comm);
  atomic_store(&freed, 1);
  pthread_join(thread, NULL);
  return waiting.error != MPI_SUCCESS ? 0 : 1;
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
  /* If tutti serves them: the MPI library would wait without end. */
  for (int how = 0; argc > 2 && how < 3; ++how) wrong += freed_meanwhile(how, 0) + freed_meanwhile(how, 1);
  PMPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d wrong\n", all_wrong);
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}
