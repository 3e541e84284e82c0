/* One rank of a job that sends a phrase, over and over, in a broadcast and an all-reduce. The launcher's variables say
 * which rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

static const char kPhrase[] = "the quick brown fox is a secret ";
#define COPIES 4096

static int check(tuttiResult_t result, const char* what) {
  if (result == tuttiSuccess) return 0;
  fprintf(stderr, "%s: %s\n", what, tuttiGetLastError(NULL));
  return 1;
}

int main(void) {
  const size_t bytes = COPIES * (sizeof kPhrase - 1);
  char* said = malloc(bytes);
  char* heard = calloc(bytes, 1);
  if (said == NULL || heard == NULL) return 1;
  for (size_t i = 0; i < COPIES; ++i) memcpy(said + i * (sizeof kPhrase - 1), kPhrase, sizeof kPhrase - 1);
  tuttiComm_t comm = NULL;
  int rank = -1;
  if (check(tuttiCommInitEnv(&comm, NULL), "tuttiCommInitEnv")) return 1;
  if (check(tuttiCommUserRank(comm, &rank), "tuttiCommUserRank")) return 1;
  if (check(tuttiBroadcast(rank == 0 ? said : heard, heard, bytes, tuttiUint8, 0, comm, NULL), "tuttiBroadcast"))
    return 1;
  if (memcmp(said, heard, bytes) != 0) return fputs("the broadcast has other bytes\n", stderr), 1;
  if (check(tuttiAllReduce(said, heard, bytes, tuttiUint8, tuttiMax, comm, NULL), "tuttiAllReduce")) return 1;
  if (memcmp(said, heard, bytes) != 0) return fputs("the all-reduce has other bytes\n", stderr), 1;
  free(said);
  free(heard);
  return check(tuttiCommDestroy(comm), "tuttiCommDestroy");
}
