/* The program that every way to install tutti must run: three ranks of one process add up their numbers. */
#include <stdio.h>
#include <tutti/tutti.h>

#define RANKS 3

int main(void) {
  tuttiComm_t comms[RANKS];
  const int devices[RANKS] = {-1, -1, -1};
  int values[RANKS];
  int version = 0;
  int rank;
  if (tuttiGetVersion(&version) != tuttiSuccess || tuttiCommInitAll(comms, RANKS, devices) != tuttiSuccess) {
    fprintf(stderr, "%s\n", tuttiGetLastError(NULL));
    return 1;
  }
  tuttiGroupStart();
  for (rank = 0; rank < RANKS; ++rank) {
    values[rank] = rank + 1;
    tuttiAllReduce(&values[rank], &values[rank], 1, tuttiInt32, tuttiSum, comms[rank], NULL);
  }
  if (tuttiGroupEnd() != tuttiSuccess) {
    fprintf(stderr, "%s\n", tuttiGetLastError(NULL));
    return 1;
  }
  printf("tutti %d, sums %d %d %d\n", version, values[0], values[1], values[2]);
  for (rank = 0; rank < RANKS; ++rank) tuttiCommDestroy(comms[rank]);
  return values[0] == 6 && values[1] == 6 && values[2] == 6 ? 0 : 1;
}
