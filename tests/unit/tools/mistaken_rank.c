/* A rank of a job in which the user has made a mistake. Usage: mistaken_rank [COUNT | exit]. Joins, reduces COUNT
 * floats and leaves, or ends without leaving; on an error it prints the text, and ends with status 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#define MOST 1024

int main(int argc, char** argv) {
  static float values[MOST];
  const size_t count = argc > 1 ? (size_t)atoi(argv[1]) : 1;
  tuttiComm_t comm = NULL;
  int rank = 0;
  if (count > MOST) return 2;
  if (tuttiCommInitEnv(&comm, NULL) != tuttiSuccess) {
    fprintf(stderr, "%s\n", tuttiGetLastError(NULL));
    return 1;
  }
  if (argc > 1 && strcmp(argv[1], "exit") == 0) return 0;
  tuttiCommUserRank(comm, &rank);
  if (tuttiAllReduce(values, values, count, tuttiFloat32, tuttiSum, comm, NULL) != tuttiSuccess) {
    fprintf(stderr, "rank %d: %s\n", rank, tuttiGetLastError(NULL));
    tuttiCommAbort(comm);
    return 1;
  }
  return tuttiCommDestroy(comm) == tuttiSuccess ? 0 : 1;
}
