/* Sums over the rows and the columns of a grid of ranks, by a communicator for each row and one for each column. */
#include <stdio.h>
#include <tutti/tutti.h>

int main(void) {
  tuttiComm_t world = NULL;
  tuttiComm_t row = NULL;
  tuttiComm_t column = NULL;
  int rank = 0;
  int ranks = 0;
  int columns = 1;
  int sums[2] = {0, 0};
  int expected[2] = {0, 0};
  int other = 0;
  if (tuttiCommInitEnv(&world, NULL) != tuttiSuccess) {
    fprintf(stderr, "%s\n", tuttiGetLastError(NULL));
    return 1;
  }
  tuttiCommUserRank(world, &rank);
  tuttiCommCount(world, &ranks);
  while ((columns + 1) * (columns + 1) <= ranks) ++columns;
  /* The ranks of one row have one color, and stand in it by their columns; the last row may be shorter. */
  if (tuttiCommSplit(world, rank / columns, rank % columns, &row, NULL) != tuttiSuccess ||
      tuttiCommSplit(world, rank % columns, rank / columns, &column, NULL) != tuttiSuccess) {
    fprintf(stderr, "rank %d: %s\n", rank, tuttiGetLastError(world));
    tuttiCommAbort(world);
    return 1;
  }
  if (tuttiAllReduce(&rank, &sums[0], 1, tuttiInt32, tuttiSum, row, NULL) != tuttiSuccess ||
      tuttiAllReduce(&rank, &sums[1], 1, tuttiInt32, tuttiSum, column, NULL) != tuttiSuccess) {
    fprintf(stderr, "rank %d: %s\n", rank, tuttiGetLastError(NULL));
    tuttiCommAbort(world);
    return 1;
  }
  for (other = 0; other < ranks; ++other) {
    if (other / columns == rank / columns) expected[0] += other;
    if (other % columns == rank % columns) expected[1] += other;
  }
  printf("rank %d, row %d, column %d: sums %d and %d\n", rank, rank / columns, rank % columns, sums[0], sums[1]);
  tuttiCommDestroy(row);
  tuttiCommDestroy(column);
  tuttiCommDestroy(world);
  return sums[0] == expected[0] && sums[1] == expected[1] ? 0 : 1;
}
