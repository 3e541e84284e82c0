/* A rank of a job in which one rank comes late for a reason. Usage: straggler_rank RANK CAUSE MS COUNT OPERATIONS
 *
 * Before each all-reduce of COUNT floats, all ranks compute for some milliseconds. The rank RANK
 *   computes   computes MS milliseconds longer,
 *   sleeps     sleeps for MS milliseconds,
 *   processor  has the processor of a process that never sleeps (which the caller starts), and low priority,
 *   link       nothing: its link is slow (which the caller sees to).
 * In the end each rank waits for a byte on its standard input. The computation lasts for so long of the thread's own
 * time, however busy the machine is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

#define COMMON_MS 8

static double own_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void compute(double ms) {
  volatile double sum = 0;
  for (const double end = own_ms() + ms; own_ms() < end;) {
    for (int i = 0; i < 1000; ++i) sum = sum + (double)i;
  }
}

int main(int argc, char** argv) {
  tuttiComm_t comm = NULL;
  int rank = 0;
  if (argc != 6) return 2;
  const int late = atoi(argv[1]);
  const char* const cause = argv[2];
  const long ms = atol(argv[3]);
  const size_t count = (size_t)atol(argv[4]);
  const int operations = atoi(argv[5]);
  float* const values = calloc(count, sizeof(float));
  if (values == NULL || tuttiCommInitEnv(&comm, NULL) != tuttiSuccess) return 1;
  tuttiCommUserRank(comm, &rank);
  if (rank == late && strcmp(cause, "processor") == 0) setpriority(PRIO_PROCESS, 0, 5);
  for (int i = 0; i < operations; ++i) {
    if (strcmp(cause, "link") != 0) compute(COMMON_MS);
    if (rank == late && strcmp(cause, "computes") == 0) compute((double)ms);
    if (rank == late && strcmp(cause, "sleeps") == 0) usleep((useconds_t)ms * 1000);
    if (tuttiAllReduce(values, values, count, tuttiFloat32, tuttiSum, comm, NULL) != tuttiSuccess) return 1;
  }
  printf("done\n");
  fflush(stdout);
  (void)getchar();
  free(values);
  return tuttiCommDestroy(comm) == tuttiSuccess ? 0 : 1;
}
