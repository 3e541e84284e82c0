/* All-reduces in a loop that replaces ranks that die by new processes. The argument is the rank that kills itself on
 * the way: tutti run -n 4 --keep-going -- ./replace 2 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { kSteps = 200, kDeath = 100, kMaxRanks = 64 };

struct job {
  tuttiComm_t comm;
  int rank;
  int ranks;
  int step;         /* the next one; INT_MAX: a new rank, which has no model yet */
  long long model;  /* what the steps compute: the same on all ranks */
  long long before; /* the model before the last step */
};

static int fail(const struct job* job) {
  fprintf(stderr, "rank %d: %s\n", job->rank, tuttiGetLastError(NULL));
  tuttiCommAbort(job->comm);
  return 1;
}

/* All ranks begin at the same step with the same model: that of the lowest rank that has one. */
static int begin(struct job* job) {
  const int is_new = job->step == INT_MAX;
  int own[2] = {job->step, is_new ? INT_MAX : job->rank};
  int lowest[2] = {0, 0};
  long long model = 0;
  if (tuttiAllReduce(own, lowest, 2, tuttiInt32, tuttiMin, job->comm, NULL) != tuttiSuccess) return 0;
  /* When a rank died, some ranks may have ended that step, and others not: the former undo it. */
  if (!is_new && job->step > lowest[0]) {
    job->model = job->before;
    job->step = lowest[0];
  }
  model = job->model;
  /* After an error, a receive buffer is undefined: then a new rank still has no model. */
  if (tuttiBcast(&model, 1, tuttiInt64, lowest[1], job->comm, NULL) != tuttiSuccess) return 0;
  job->model = model;
  job->step = lowest[0];
  return 1;
}

/* Does all steps that are left. 0: an operation has failed. */
static int do_steps(struct job* job, int victim) {
  long long own = 0;
  long long sum = 0;
  for (; job->step < kSteps; ++job->step) {
    if (job->rank == victim && job->step == kDeath) raise(SIGKILL);
    own = (long long)(job->rank + 1) * job->step;
    if (tuttiAllReduce(&own, &sum, 1, tuttiInt64, tuttiSum, job->comm, NULL) != tuttiSuccess) return 0;
    job->before = job->model;
    job->model += sum;
  }
  return 1;
}

/* Starts this program as a new rank. In a cluster, a scheduler does that, and the id travels over a store. Other users
 * of this machine can read the arguments: if you do not trust them, pass the id through a pipe. */
static int start_rank(int rank, int ranks, const tuttiUniqueId* id) {
  char hex[2 * sizeof id->internal + 1];
  char numbers[2][16];
  size_t i = 0;
  for (i = 0; i < sizeof id->internal; ++i) snprintf(hex + 2 * i, 3, "%02x", (unsigned char)id->internal[i]);
  snprintf(numbers[0], sizeof numbers[0], "%d", rank);
  snprintf(numbers[1], sizeof numbers[1], "%d", ranks);
  switch (fork()) {
    case -1: return 0;
    case 0: execl("/proc/self/exe", "replace", "new", numbers[0], numbers[1], hex, (char*)NULL); _exit(1);
    default: return 1;
  }
}

/* What start_rank passes. */
static int join(struct job* job, char** argv) {
  tuttiUniqueId id;
  unsigned byte = 0;
  size_t i = 0;
  job->rank = atoi(argv[2]);
  for (i = 0; i < sizeof id.internal && sscanf(argv[4] + 2 * i, "%2x", &byte) == 1; ++i) id.internal[i] = (char)byte;
  if (i != sizeof id.internal) return 0;
  job->step = INT_MAX;
  return tuttiCommGrow(NULL, atoi(argv[3]), &id, job->rank, &job->comm, NULL) == tuttiSuccess;
}

/* Replaces the ranks that have died. The lowest that lives starts the new ones. */
static int replace(struct job* job) {
  tuttiComm_t whole = NULL;
  tuttiUniqueId id;
  uint64_t flag = 0;
  int dead[kMaxRanks];
  int count = 0;
  int lowest = 0;
  int i = 0;
  /* After an agreement, all ranks have the same list of dead ranks. */
  if (tuttiCommAgree(job->comm, &flag) != tuttiSuccess ||
      tuttiCommGetFailed(job->comm, dead, kMaxRanks, &count) != tuttiSuccess) {
    return 0;
  }
  if (count == 0) return 0; /* an operation has failed for another reason */
  while (lowest < count && dead[lowest] == lowest) ++lowest;
  if (job->rank == lowest) {
    if (tuttiCommGetUniqueId(job->comm, &id) != tuttiSuccess) return 0;
    for (i = 0; i < count; ++i) {
      printf("rank %d is replaced in step %d\n", dead[i], job->step);
      fflush(stdout);
      if (!start_rank(dead[i], job->ranks, &id)) return 0;
    }
  }
  if (tuttiCommGrow(job->comm, job->ranks, job->rank == lowest ? &id : NULL, -1, &whole, NULL) != tuttiSuccess) {
    return 0;
  }
  tuttiCommDestroy(job->comm);
  job->comm = whole;
  return 1;
}

int main(int argc, char** argv) {
  struct job job = {NULL, 0, 0, 0, 0, 0};
  const int is_new = argc > 4 && strcmp(argv[1], "new") == 0;
  const int victim = argc > 1 && !is_new ? atoi(argv[1]) : -1;
  const long long ends = (long long)kSteps * (kSteps - 1) / 2; /* the sum of all steps */
  long long expected = 0;
  uint64_t done = 0;
  int status = 0;
  if (is_new ? !join(&job, argv) : tuttiCommInitEnv(&job.comm, NULL) != tuttiSuccess) return fail(&job);
  tuttiCommUserRank(job.comm, &job.rank);
  tuttiCommCount(job.comm, &job.ranks);
  if (job.ranks > kMaxRanks) {
    fprintf(stderr, "at most %d ranks\n", kMaxRanks);
    return 1;
  }
  for (;;) {
    done = (uint64_t)(begin(&job) && do_steps(&job, victim));
    /* A rank may have ended the last step when another one fails in it. So no rank leaves before all have ended it. */
    if (tuttiCommAgree(job.comm, &done) != tuttiSuccess) return fail(&job);
    if (done != 0) break;
    if (!replace(&job)) return fail(&job);
  }
  expected = ends * job.ranks * (job.ranks + 1) / 2;
  printf("rank %d of %d%s: the model is %s\n", job.rank, job.ranks, is_new ? ", a new one" : "",
         job.model == expected ? "right" : "wrong");
  if (tuttiCommDestroy(job.comm) != tuttiSuccess || job.model != expected) return 1;
  while (wait(&status) > 0) {
    if (status != 0) return 1;
  }
  return 0;
}
