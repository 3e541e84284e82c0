/* A rank of a job that stands still. Usage: diagnosed_rank RANK HOW: all ranks reduce, then that rank stops itself
 * (stop), reduces with the next one, which does not (elsewhere), queues a reduction behind a function that waits for a
 * byte (stream), calls tuttiCommAgree alone (agree), waits for a byte on its standard input (late) or reduces another
 * count (count), while the others reduce once more; or all ranks wait for a message of the next one (receive); or that
 * rank computes for some milliseconds before each of many reductions (slow); or that rank forks a child (fork). The
 * child makes two ranks of its own and prints a line. Then the child waits for a byte, and so does its parent. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>

static void wait_for_byte(void* none) {
  (void)none;
  (void)getchar();
}

int main(int argc, char** argv) {
  static float values[100];
  tuttiComm_t comm = NULL;
  int rank = 0;
  int size = 0;
  size_t count = 100;
  if (argc != 3 || tuttiCommInitEnv(&comm, NULL) != tuttiSuccess) return 1;
  tuttiCommUserRank(comm, &rank);
  tuttiCommCount(comm, &size);
  for (int i = 0; i < (strcmp(argv[2], "slow") == 0 ? 2000 : 5); ++i) {
    if (strcmp(argv[2], "slow") == 0 && rank == atoi(argv[1])) usleep(5000);
    if (tuttiAllReduce(values, values, count, tuttiFloat32, tuttiSum, comm, NULL) != tuttiSuccess) return 1;
  }
  if (strcmp(argv[2], "elsewhere") == 0) {
    tuttiComm_t other = NULL;
    const int is_in = rank == atoi(argv[1]) || rank == (atoi(argv[1]) + 1) % size;
    if (tuttiCommSplit(comm, is_in ? 0 : TUTTI_SPLIT_NOCOLOR, rank, &other, NULL) != tuttiSuccess) return 1;
    for (int i = 0; is_in && i < (rank == atoi(argv[1]) ? 2 : 1); ++i) {
      if (tuttiAllReduce(values, values, count, tuttiFloat32, tuttiSum, other, NULL) != tuttiSuccess) return 1;
    }
  }
  if (rank == atoi(argv[1])) {
    if (strcmp(argv[2], "stop") == 0) raise(SIGSTOP);
    if (strcmp(argv[2], "fork") == 0 && fork() == 0) {
      tuttiComm_t own[2];
      if (tuttiCommInitAll(own, 2, NULL) != tuttiSuccess) _exit(1);
      fputs("the child has two ranks\n", stderr);
      _exit(getchar() == EOF);
    }
    if (strcmp(argv[2], "late") == 0 || strcmp(argv[2], "fork") == 0) getchar();
    if (strcmp(argv[2], "count") == 0) count = 50;
    if (strcmp(argv[2], "stream") == 0) {
      tuttiStream_t stream = NULL;
      if (tuttiStreamCreate(&stream) != tuttiSuccess) return 1;
      if (tuttiLaunchHostFunc(stream, wait_for_byte, NULL) != tuttiSuccess) return 1;
      if (tuttiAllReduce(values, values, count, tuttiFloat32, tuttiSum, comm, stream) != tuttiSuccess) return 1;
      if (tuttiStreamSynchronize(stream) != tuttiSuccess) return 1;
      tuttiStreamDestroy(stream);
      return tuttiCommDestroy(comm) == tuttiSuccess ? 0 : 1;
    }
    if (strcmp(argv[2], "agree") == 0) {
      uint64_t flag = 1;
      return tuttiCommAgree(comm, &flag) == tuttiSuccess ? 1 : 0;
    }
  } else if (strcmp(argv[2], "agree") == 0) {
    return getchar() == EOF;
  }
  if (strcmp(argv[2], "receive") == 0) {
    return tuttiRecv(values, count, tuttiFloat32, (rank + 1) % size, comm, NULL) == tuttiSuccess ? 1 : 0;
  }
  if (tuttiAllReduce(values, values, count, tuttiFloat32, tuttiSum, comm, NULL) != tuttiSuccess) {
    getchar(); /* the failed communicator can be looked at */
    tuttiCommAbort(comm);
    return 1;
  }
  return tuttiCommDestroy(comm) == tuttiSuccess ? 0 : 1;
}
