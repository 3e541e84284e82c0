/* Programs that go on when a process has died, with Open MPI 5 under `mpirun --with-ft ulfm`. Usage: ulfm CASE; the
 * cases are at the end. Every case uses a duplicate of MPI_COMM_WORLD; the rank that dies is the last one. */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "extension.h"

enum { kLong = 100000, kAfterwards = 40, kSoonSeconds = 10, kSteps = 200 };

static int rank, ranks, victim, wrong;
static MPI_Comm comm;
static long long input[kLong], sum[kLong];

static void expect(int holds, const char* what) {
  if (!holds && ++wrong < 20) fprintf(stderr, "rank %d: %s\n", rank, what);
}

static void expect_class(int error, int kind, const char* what) {
  int got = MPI_SUCCESS;
  MPI_Error_class(error, &got);
  if (got != kind && ++wrong < 20) fprintf(stderr, "rank %d: %s: class %d in place of %d\n", rank, what, got, kind);
}

static void sleep_ms(useconds_t ms) {
  usleep(ms * 1000);
}

static void die(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

/* The victim returns when all others have left their last collective: its death cannot be an error of that. */
static void wait_for_all(void) {
  char token = 0;
  if (rank != victim) {
    MPI_Send(&token, 1, MPI_CHAR, victim, 0, comm);
    return;
  }
  for (int other = 0; other < victim; ++other) MPI_Recv(&token, 1, MPI_CHAR, other, 0, comm, MPI_STATUS_IGNORE);
}

static void* die_later(void* unused) {
  (void)unused;
  sleep_ms(200);
  die();
  return NULL;
}

/* ---- The collectives, each with an error code of MPI ---- */

static int allreduce(void) {
  return MPI_Allreduce(input, sum, 1, MPI_LONG_LONG, MPI_SUM, comm);
}
static int long_allreduce(void) {
  return MPI_Allreduce(input, sum, kLong, MPI_LONG_LONG, MPI_SUM, comm);
}
static int barrier(void) {
  return MPI_Barrier(comm);
}
static int bcast(void) {
  return MPI_Bcast(input, 1, MPI_LONG_LONG, 0, comm);
}
static int iallreduce(void) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int error = MPI_Iallreduce(input, sum, kLong, MPI_LONG_LONG, MPI_SUM, comm, &request);
  return error != MPI_SUCCESS ? error : MPI_Wait(&request, MPI_STATUS_IGNORE);
}
/* The request is made by the first call, and freed by free_persistent(). */
static MPI_Request kept = MPI_REQUEST_NULL;
static int persistent(void) {
  int error = MPI_SUCCESS;
  if (kept == MPI_REQUEST_NULL) {
    error = PERSISTENT(Allreduce)(input, sum, kLong, MPI_LONG_LONG, MPI_SUM, comm, MPI_INFO_NULL, &kept);
  }
  if (error == MPI_SUCCESS) error = MPI_Start(&kept);
  return error != MPI_SUCCESS ? error : MPI_Wait(&kept, MPI_STATUS_IGNORE);
}
static void free_persistent(void) {
  if (kept != MPI_REQUEST_NULL) MPI_Request_free(&kept);
}

static const struct {
  const char* name;
  int (*call)(void);
} collectives[] = {{"allreduce", allreduce}, {"long_allreduce", long_allreduce}, {"barrier", barrier},
                   {"bcast", bcast},         {"iallreduce", iallreduce},         {"persistent", persistent}};
enum { kCollectives = sizeof collectives / sizeof *collectives };

/* ---- What programs do after an error ---- */

static void check_failed(void) {
  MPI_Group failed = MPI_GROUP_NULL;
  MPI_Group all = MPI_GROUP_NULL;
  const int first = 0;
  int size = 0;
  int dead = -1;
  expect_class(MPIX_Comm_failure_ack(comm), MPI_SUCCESS, "MPIX_Comm_failure_ack");
  expect_class(MPIX_Comm_failure_get_acked(comm, &failed), MPI_SUCCESS, "MPIX_Comm_failure_get_acked");
  MPI_Group_size(failed, &size);
  expect(size == 1, "the number of ranks that have died");
  MPI_Comm_group(comm, &all);
  if (size > 0) MPI_Group_translate_ranks(failed, 1, &first, all, &dead);
  expect(dead == victim, "the rank that has died");
  MPI_Group_free(&all);
  MPI_Group_free(&failed);
}

static void agree(void) {
  int flag = rank == 0 ? 6 : 7;
  expect_class(MPIX_Comm_agree(comm, &flag), MPI_SUCCESS, "MPIX_Comm_agree");
  expect(flag == 6, "the flag on which the ranks agree");
}

/* The summary shows that tutti serves the smaller communicator: no other one has an MPI_Scan. */
static void shrink(int left) {
  MPI_Comm smaller = MPI_COMM_NULL;
  int size = 0;
  int place = -1;
  expect_class(MPIX_Comm_shrink(comm, &smaller), MPI_SUCCESS, "MPIX_Comm_shrink");
  MPI_Comm_size(smaller, &size);
  MPI_Comm_rank(smaller, &place);
  expect(size == left, "the size of the smaller communicator");
  for (int time = 0; time < kAfterwards; ++time) {
    const long long mine = time + 1;
    long long got = 0;
    expect_class(MPI_Scan(&mine, &got, 1, MPI_LONG_LONG, MPI_SUM, smaller), MPI_SUCCESS, "a scan afterwards");
    expect(got == (place + 1) * mine, "the result of a scan afterwards");
  }
  MPI_Comm_free(&smaller);
}

/* ---- The cases ---- */

/* The victim dies before it calls the collective, or in it. */
static void kill_at(int which, int inside) {
  int (*const call)(void) = collectives[which].call;
  double began = 0;
  pthread_t thread;
  /* A call may succeed on ranks that need nothing from the victim, or have got that before its death. */
  const int may_succeed = inside || call == bcast;
  MPI_Barrier(comm); /* makes tutti's communicator; a nonblocking call does not */
  for (int time = 0; time < 3; ++time) expect_class(call(), MPI_SUCCESS, collectives[which].name);
  wait_for_all();
  if (rank == victim) {
    if (!inside) die();
    pthread_create(&thread, NULL, die_later, NULL);
    for (;;) call();
  }
  /* Rank 0 comes late, so that the victim waits in the collective. */
  if (inside && rank == 0) sleep_ms(400);
  began = MPI_Wtime();
  if (may_succeed) {
    while (call() == MPI_SUCCESS && MPI_Wtime() - began < kSoonSeconds) sleep_ms(1);
  } else {
    expect_class(call(), MPIX_ERR_PROC_FAILED, collectives[which].name);
  }
  expect_class(call(), MPIX_ERR_PROC_FAILED, "the same collective again");
  expect(MPI_Wtime() - began < kSoonSeconds, "the errors come late");
  check_failed();
  agree();
  free_persistent();
  shrink(ranks - 1);
}

/* Rank 0 revokes the communicator while the others are in a collective. No rank dies. `unseen`: not by the binding's
 * function, which Fortran does not call either; the other ranks then learn of it from the MPI library. */
static void revoke_in(int which, int unseen) {
  int (*const call)(void) = collectives[which].call;
  int revoked = 0;
  double began = 0;
  MPI_Barrier(comm); /* makes tutti's communicator; a nonblocking call does not */
  for (int time = 0; time < 3; ++time) expect_class(call(), MPI_SUCCESS, collectives[which].name);
  began = MPI_Wtime();
  if (rank == 0) {
    sleep_ms(100);
    expect_class(unseen ? PMPIX_Comm_revoke(comm) : MPIX_Comm_revoke(comm), MPI_SUCCESS, "MPIX_Comm_revoke");
  }
  if (rank != 0 || !unseen) expect_class(call(), MPIX_ERR_REVOKED, collectives[which].name);
  /* In tutti, a call of rank 0 could end the collective of the others, with or without an error. */
  if (unseen) {
    char token = 0;
    if (rank != 0) MPI_Send(&token, 1, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    for (int other = 1; rank == 0 && other < ranks; ++other) {
      MPI_Recv(&token, 1, MPI_CHAR, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
  /* A rank may complete a collective for which it has got all data before it learns of the revocation. */
  while (rank == 0 && unseen && call() == MPI_SUCCESS && MPI_Wtime() - began < kSoonSeconds) sleep_ms(1);
  for (int other = 0; other < kCollectives; ++other) {
    if (collectives[other].call != persistent) {
      expect_class(collectives[other].call(), MPIX_ERR_REVOKED, "a collective after the revocation");
    }
  }
  MPIX_Comm_is_revoked(comm, &revoked);
  expect(revoked, "the communicator is revoked");
  expect(MPI_Wtime() - began < kSoonSeconds, "the errors come late");
  agree();
  free_persistent();
  shrink(ranks);
}

/* A communicator without the victim serves on; a new one can be made. */
static void kill_outside(void) {
  MPI_Comm others = MPI_COMM_NULL;
  MPI_Comm_split(comm, rank == victim, 0, &others);
  if (rank != victim) MPI_Barrier(others);
  expect_class(allreduce(), MPI_SUCCESS, "allreduce before the death");
  wait_for_all();
  if (rank == victim) die();
  expect_class(allreduce(), MPIX_ERR_PROC_FAILED, "allreduce");
  for (int time = 0; time < kAfterwards; ++time) {
    const int one = 1;
    int count = 0;
    expect_class(MPI_Exscan(&one, &count, 1, MPI_INT, MPI_SUM, others), MPI_SUCCESS, "a communicator without the dead");
    expect(rank == 0 || count == rank, "the result of a communicator without the dead");
  }
  check_failed();
  shrink(ranks - 1);
  MPI_Comm_free(&others);
}

/* The error handler revokes, shrinks, frees and replaces the communicator; two ranks die in turn. */
static int recoveries;
static void recover(MPI_Comm* failed, int* error, ...) {
  MPI_Comm smaller = MPI_COMM_NULL;
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  int kind = MPI_SUCCESS;
  MPI_Error_class(*error, &kind);
  expect(kind == MPIX_ERR_PROC_FAILED || kind == MPIX_ERR_REVOKED, "the class that the error handler gets");
  expect(*failed == comm, "the communicator that the error handler gets");
  MPIX_Comm_revoke(*failed);
  expect_class(MPIX_Comm_shrink(*failed, &smaller), MPI_SUCCESS, "MPIX_Comm_shrink in the error handler");
  MPI_Comm_get_errhandler(*failed, &handler);
  MPI_Comm_set_errhandler(smaller, handler);
  MPI_Errhandler_free(&handler);
  MPI_Comm_free(&comm);
  comm = smaller;
  ++recoveries;
}

static void recover_twice(void) {
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  int size = 0;
  MPI_Comm_create_errhandler(recover, &handler);
  MPI_Comm_set_errhandler(comm, handler);
  MPI_Errhandler_free(&handler);
  for (int step = 0; step < kSteps;) {
    const int before = recoveries;
    if ((rank == victim && step == kSteps / 4) || (rank == victim - 1 && step == kSteps / 2)) die();
    input[0] = step;
    if (allreduce() == MPI_SUCCESS) {
      MPI_Comm_size(comm, &size);
      expect(sum[0] == (long long)step * size, "a sum");
      ++step;
    }
    while (before != recoveries) { /* the ranks may be a step apart */
      int least = 0;
      const int round = recoveries;
      if (MPI_Allreduce(&step, &least, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && round == recoveries) {
        step = least;
        break;
      }
    }
  }
  MPI_Comm_size(comm, &size);
  expect(size == ranks - 2 && recoveries == 2, "the ranks that are left");
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  shrink(ranks - 2);
}

/* The victim dies while the others make their communicator of tutti: with TUTTI_MPI_AFTER=3, in the fourth call. */
static void kill_when_made(void) {
  for (int time = 0; time < 3; ++time) expect_class(allreduce(), MPI_SUCCESS, "the first calls");
  wait_for_all();
  if (rank == victim) die();
  expect_class(allreduce(), MPIX_ERR_PROC_FAILED, "the call that makes tutti's communicator");
  expect_class(allreduce(), MPIX_ERR_PROC_FAILED, "the call after that");
  check_failed();
  shrink(ranks - 1);
}

/* Open MPI 5.0 waits without end in MPI_Finalize after some deaths, also without the binding. */
static void leave(int signal) {
  (void)signal;
  _exit(wrong == 0 ? 0 : 1);
}

/* MPI_Finalize of the MPI library first ends MPI_COMM_SELF with its attributes: this is called when the binding has
 * written its summary, however long that took. */
static int leave_soon(MPI_Comm self, int keyval, void* value, void* extra) {
  (void)self, (void)keyval, (void)value, (void)extra;
  signal(SIGALRM, leave);
  alarm(10);
  return MPI_SUCCESS;
}

static void finalize(void) {
  int keyval = MPI_KEYVAL_INVALID;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, leave_soon, &keyval, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
  MPI_Finalize();
}

static int run(const char* name) {
  for (int which = 0; which < kCollectives; ++which) {
    const char* const collective = collectives[which].name;
    if (strncmp(name, "before_", 7) == 0 && strcmp(name + 7, collective) == 0) return kill_at(which, 0), 1;
    if (strncmp(name, "in_", 3) == 0 && strcmp(name + 3, collective) == 0) return kill_at(which, 1), 1;
    if (strncmp(name, "revoke_", 7) == 0 && strcmp(name + 7, collective) == 0) return revoke_in(which, 0), 1;
    if (strncmp(name, "unseen_", 7) == 0 && strcmp(name + 7, collective) == 0) return revoke_in(which, 1), 1;
  }
  if (strcmp(name, "outside") == 0) return kill_outside(), 1;
  if (strcmp(name, "handler") == 0) return recover_twice(), 1;
  if (strcmp(name, "making") == 0) return kill_when_made(), 1;
  return 0;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  victim = ranks - 1;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  for (int at = 0; at < kLong; ++at) input[at] = at;
  expect(argc == 2 && run(argv[1]), "the name of a case");
  printf("rank %d: %d wrong\n", rank, wrong);
  fflush(stdout);
  finalize();
  return wrong == 0 ? 0 : 1;
}
