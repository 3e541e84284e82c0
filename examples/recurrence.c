/* Every rank holds one step of the recurrence x -> factor * x + offset, and learns which x it begins with, by one
 * exclusive scan: steps are composed by an operator of this program's, which does not commute. Start it under mpirun,
 * srun or torchrun, or with TUTTI_RANK, TUTTI_WORLD_SIZE and TUTTI_ROOT set. */
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

struct step { /* goes as a tuttiComplex64, which has two floats as well */
  float factor;
  float offset;
};

static float apply(struct step step, float x) {
  return step.factor * x + step.offset;
}

/* inout becomes: first in, then inout. */
static void compose(const void* in, void* inout, size_t count, tuttiDataType_t datatype, void* context) {
  (void)datatype;
  (void)context;
  for (size_t i = 0; i < count; ++i) {
    struct step first;
    struct step second;
    memcpy(&first, (const char*)in + i * sizeof first, sizeof first); /* may be aligned in any way */
    memcpy(&second, (char*)inout + i * sizeof second, sizeof second);
    second.offset = apply(second, first.offset);
    second.factor *= first.factor;
    memcpy((char*)inout + i * sizeof second, &second, sizeof second);
  }
}

static struct step step_of(int rank) {
  const struct step step = {(float)(rank % 3 - 1), (float)rank};
  return step;
}

int main(void) {
  tuttiComm_t comm = NULL;
  tuttiRedOp_t then;
  struct step mine;
  struct step before = {1, 0};
  float expected = 5;
  int rank = 0;
  if (tuttiCommInitEnv(&comm, NULL) != tuttiSuccess) {
    fprintf(stderr, "%s\n", tuttiGetLastError(NULL));
    return 1;
  }
  tuttiCommUserRank(comm, &rank);
  mine = step_of(rank);
  if (tuttiRedOpCreate(&then, compose, NULL, 0, comm) != tuttiSuccess ||
      tuttiExscan(&mine, &before, 1, tuttiComplex64, then, comm, NULL) != tuttiSuccess) {
    fprintf(stderr, "rank %d: %s\n", rank, tuttiGetLastError(comm));
    tuttiCommAbort(comm);
    return 1;
  }
  for (int r = 0; r < rank; ++r) expected = apply(step_of(r), expected);
  printf("rank %d begins with %g\n", rank, apply(before, 5));
  return tuttiCommDestroy(comm) == tuttiSuccess && apply(before, 5) == expected ? 0 : 1;
}
