/* Averages in a loop, in survivor mode: when a rank dies, the others go on in the same call. The argument is the rank
 * that kills itself on the way: tutti run -n 4 --keep-going -- ./survivors 2 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

enum { kSteps = 200, kDeath = 100, kMaxRanks = 64 };

int main(int argc, char** argv) {
  const int victim = argc > 1 ? atoi(argv[1]) : -1;
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  tuttiComm_t comm = NULL;
  int contributors[kMaxRanks];
  int count = 0;
  int before = 0;
  int rank = 0;
  int step = 0;
  config.survivors = "on";
  if (tuttiCommInitEnv(&comm, &config) != tuttiSuccess) goto failed;
  tuttiCommUserRank(comm, &rank);
  tuttiCommCount(comm, &before);
  if (before > kMaxRanks) {
    fprintf(stderr, "at most %d ranks\n", kMaxRanks);
    tuttiCommAbort(comm);
    return 1;
  }
  for (step = 0; step < kSteps; ++step) {
    double own = (rank + 1) * step;
    double average = 0;
    double expected = 0;
    int i = 0;
    if (rank == victim && step == kDeath) raise(SIGKILL);
    if (tuttiAllReduce(&own, &average, 1, tuttiFloat64, tuttiAvg, comm, NULL) != tuttiSuccess) goto failed;
    if (tuttiCommGetContributors(comm, contributors, kMaxRanks, &count) != tuttiSuccess) goto failed;
    if (count != before) printf("rank %d: %d ranks contribute from step %d on\n", rank, count, step);
    before = count;
    for (i = 0; i < count; ++i) expected += (double)(contributors[i] + 1) * step / count;
    if (average - expected > 1e-9 * (expected + 1) || expected - average > 1e-9 * (expected + 1)) {
      fprintf(stderr, "rank %d: step %d: %g instead of %g\n", rank, step, average, expected);
      tuttiCommAbort(comm);
      return 1;
    }
  }
  printf("rank %d: all averages are right, at last of %d ranks\n", rank, count);
  return tuttiCommDestroy(comm) == tuttiSuccess ? 0 : 1;
failed:
  fprintf(stderr, "rank %d: %s\n", rank, tuttiGetLastError(comm));
  tuttiCommAbort(comm);
  return 1;
}
