/* All-reduces in a loop that goes on without ranks that die. The argument is the rank that kills itself on the way:
 * tutti run -n 4 --keep-going -- ./go_on 2 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

enum { kSteps = 200, kDeath = 100, kMaxRanks = 64 };

struct job {
  tuttiComm_t comm;
  int ranks;
  int names[kMaxRanks]; /* by rank of comm: the rank in the first communicator */
  int name;             /* this rank's */
  int step;             /* the next one */
};

static int fail(const struct job* job) {
  fprintf(stderr, "rank %d: %s\n", job->name, tuttiGetLastError(NULL));
  tuttiCommAbort(job->comm);
  return 1;
}

/* Does all steps that are left. 0: an operation has failed; job->step is the step that is not done. */
static int do_steps(struct job* job, int victim) {
  int first = 0;
  long long own = 0;
  long long sum = 0;
  long long expected = 0;
  int i = 0;
  /* When a rank died, some ranks may have ended that step, and others not: they begin with the lowest. */
  if (tuttiAllReduce(&job->step, &first, 1, tuttiInt32, tuttiMin, job->comm, NULL) != tuttiSuccess) return 0;
  for (job->step = first; job->step < kSteps; ++job->step) {
    if (job->name == victim && job->step == kDeath) raise(SIGKILL);
    own = (long long)(job->name + 1) * job->step;
    if (tuttiAllReduce(&own, &sum, 1, tuttiInt64, tuttiSum, job->comm, NULL) != tuttiSuccess) return 0;
    expected = 0;
    for (i = 0; i < job->ranks; ++i) expected += (long long)(job->names[i] + 1) * job->step;
    if (sum != expected) {
      fprintf(stderr, "rank %d: step %d: %lld instead of %lld\n", job->name, job->step, sum, expected);
      exit(1);
    }
  }
  return 1;
}

/* Continues with the ranks that live. */
static int shrink(struct job* job) {
  tuttiComm_t smaller = NULL;
  int failed[kMaxRanks];
  int count = 0;
  int kept = 0;
  int next = 0;
  int i = 0;
  char text[256];
  snprintf(text, sizeof text, "%s", tuttiGetLastError(job->comm));
  if (tuttiCommShrink(job->comm, NULL, 0, &smaller, NULL, TUTTI_SHRINK_DEFAULT) != tuttiSuccess) return 0;
  if (tuttiCommGetFailed(job->comm, failed, kMaxRanks, &count) != tuttiSuccess || count == 0) {
    fprintf(stderr, "rank %d: an operation failed, and no rank has died: %s\n", job->name, text);
    tuttiCommDestroy(smaller);
    return 0;
  }
  for (i = 0; i < job->ranks; ++i) {
    if (next < count && failed[next] == i) {
      printf("rank %d goes on in step %d without rank %d\n", job->name, job->step, job->names[i]);
      ++next;
    } else {
      job->names[kept++] = job->names[i];
    }
  }
  tuttiCommDestroy(job->comm);
  job->comm = smaller;
  job->ranks = kept;
  return 1;
}

int main(int argc, char** argv) {
  struct job job = {NULL, 0, {0}, 0, 0};
  const int victim = argc > 1 ? atoi(argv[1]) : -1;
  uint64_t done = 0;
  int i = 0;
  if (tuttiCommInitEnv(&job.comm, NULL) != tuttiSuccess) return fail(&job);
  tuttiCommUserRank(job.comm, &job.name);
  tuttiCommCount(job.comm, &job.ranks);
  if (job.ranks > kMaxRanks) {
    fprintf(stderr, "at most %d ranks\n", kMaxRanks);
    return 1;
  }
  for (i = 0; i < job.ranks; ++i) job.names[i] = i;
  for (;;) {
    done = (uint64_t)do_steps(&job, victim);
    /* A rank may have ended the last step when another one fails in it. So no rank leaves before all have ended it. */
    if (tuttiCommAgree(job.comm, &done) != tuttiSuccess) return fail(&job);
    if (done != 0) break;
    if (!shrink(&job)) return fail(&job);
  }
  printf("rank %d: all sums are right, at last of %d ranks\n", job.name, job.ranks);
  return tuttiCommDestroy(job.comm) == tuttiSuccess ? 0 : 1;
}
