/* Every collective in one of MPI's forms: blocking, nonblocking or persistent, by a number that all ranks draw
 * alike; with counts of int or of MPI_Count if the MPI library has both, by a number that this rank draws. */
#ifndef TUTTI_TESTS_BINDINGS_MPI_WAYS_H_
#define TUTTI_TESTS_BINDINGS_MPI_WAYS_H_

#include <mpi.h>
#include <stdint.h>

#include "extension.h"

enum { kWayRanks = 8 };

static unsigned draw(unsigned below);
/* For the next calls, if the MPI library supports only that form. */
static int blocking_only;

static int ranks_of(MPI_Comm comm) {
  int ranks = 0;
  PMPI_Comm_size(comm, &ranks);
  return ranks;
}

#if MPI_VERSION >= 4
/* This rank's own. */
static int draw_wide(void) {
  static uint64_t own;
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  own = own * 6364136223846793005u + 1442695040888963407u + (uint64_t)rank;
  return (int)(own >> 62) % 2;
}
static MPI_Count* wide_counts(int ranks, const int* narrow, int which) {
  static MPI_Count wide[2][kWayRanks];
  for (int at = 0; narrow != NULL && at < ranks; ++at) wide[which][at] = narrow[at];
  return narrow == NULL ? NULL : wide[which];
}
static MPI_Aint* wide_displs(int ranks, const int* narrow, int which) {
  static MPI_Aint wide[2][kWayRanks];
  for (int at = 0; narrow != NULL && at < ranks; ++at) wide[which][at] = narrow[at];
  return narrow == NULL ? NULL : wide[which];
}
#define NARROW_OR_WIDE(NARROW, WIDE) (draw_wide() ? WIDE : NARROW)
#define COUNTS(COUNTS, WHICH) wide_counts(ranks_of(comm), COUNTS, WHICH)
#define DISPLS(DISPLS, WHICH) wide_displs(ranks_of(comm), DISPLS, WHICH)
#else
#define NARROW_OR_WIDE(NARROW, WIDE) (NARROW)
#endif

/* Open MPI 4.1 overlooks displacements in its nonblocking exchange of one rank, which is not served. */
#define UNPACKED(...) __VA_ARGS__
#define WAY(NAME, INAME, PARAMETERS, ARGUMENTS, WIDE)                                                              \
  static int way_##NAME PARAMETERS {                                                                               \
    MPI_Request request = MPI_REQUEST_NULL;                                                                        \
    const unsigned way = blocking_only || ranks_of(comm) == 1 ? 0 : draw(4);                                       \
    int error = MPI_SUCCESS;                                                                                       \
    if (way < 2) return NARROW_OR_WIDE(MPI_##NAME ARGUMENTS, MPI_##NAME##_c WIDE);                                 \
    if (way == 2) {                                                                                                \
      error = NARROW_OR_WIDE(MPI_##INAME(UNPACKED ARGUMENTS, &request), MPI_##INAME##_c(UNPACKED WIDE, &request)); \
    } else {                                                                                                       \
      error = NARROW_OR_WIDE(PERSISTENT(NAME)(UNPACKED ARGUMENTS, MPI_INFO_NULL, &request),                        \
                             MPI_##NAME##_init_c(UNPACKED WIDE, MPI_INFO_NULL, &request));                         \
      if (error == MPI_SUCCESS) error = MPI_Start(&request);                                                       \
    }                                                                                                              \
    if (error == MPI_SUCCESS) error = MPI_Wait(&request, MPI_STATUS_IGNORE);                                       \
    if (way == 3) MPI_Request_free(&request);                                                                      \
    return error;                                                                                                  \
  }

#define REDUCED const void *s, void *r, int n, MPI_Datatype t, MPI_Op o
WAY(Allreduce, Iallreduce, (REDUCED, MPI_Comm comm), (s, r, n, t, o, comm), (s, r, n, t, o, comm))
WAY(Reduce, Ireduce, (REDUCED, int root, MPI_Comm comm), (s, r, n, t, o, root, comm), (s, r, n, t, o, root, comm))
WAY(Scan, Iscan, (REDUCED, MPI_Comm comm), (s, r, n, t, o, comm), (s, r, n, t, o, comm))
WAY(Exscan, Iexscan, (REDUCED, MPI_Comm comm), (s, r, n, t, o, comm), (s, r, n, t, o, comm))
WAY(Reduce_scatter_block, Ireduce_scatter_block, (REDUCED, MPI_Comm comm), (s, r, n, t, o, comm), (s, r, n, t, o, comm))
WAY(Reduce_scatter, Ireduce_scatter, (const void* s, void* r, const int* n, MPI_Datatype t, MPI_Op o, MPI_Comm comm),
    (s, r, n, t, o, comm), (s, r, COUNTS(n, 0), t, o, comm))

#define MOVED const void *s, int sn, MPI_Datatype st, void *r, int rn, MPI_Datatype rt
WAY(Bcast, Ibcast, (void* b, int n, MPI_Datatype t, int root, MPI_Comm comm), (b, n, t, root, comm),
    (b, n, t, root, comm))
WAY(Allgather, Iallgather, (MOVED, MPI_Comm comm), (s, sn, st, r, rn, rt, comm), (s, sn, st, r, rn, rt, comm))
WAY(Alltoall, Ialltoall, (MOVED, MPI_Comm comm), (s, sn, st, r, rn, rt, comm), (s, sn, st, r, rn, rt, comm))
WAY(Gather, Igather, (MOVED, int root, MPI_Comm comm), (s, sn, st, r, rn, rt, root, comm),
    (s, sn, st, r, rn, rt, root, comm))
WAY(Scatter, Iscatter, (MOVED, int root, MPI_Comm comm), (s, sn, st, r, rn, rt, root, comm),
    (s, sn, st, r, rn, rt, root, comm))

#define GATHERED const void *s, int sn, MPI_Datatype st, void *r, const int *rn, const int *rd, MPI_Datatype rt
WAY(Allgatherv, Iallgatherv, (GATHERED, MPI_Comm comm), (s, sn, st, r, rn, rd, rt, comm),
    (s, sn, st, r, COUNTS(rn, 0), DISPLS(rd, 0), rt, comm))
WAY(Gatherv, Igatherv, (GATHERED, int root, MPI_Comm comm), (s, sn, st, r, rn, rd, rt, root, comm),
    (s, sn, st, r, COUNTS(rn, 0), DISPLS(rd, 0), rt, root, comm))
WAY(Scatterv, Iscatterv,
    (const void* s, const int* sn, const int* sd, MPI_Datatype st, void* r, int rn, MPI_Datatype rt, int root,
     MPI_Comm comm),
    (s, sn, sd, st, r, rn, rt, root, comm), (s, COUNTS(sn, 0), DISPLS(sd, 0), st, r, rn, rt, root, comm))
WAY(Alltoallv, Ialltoallv,
    (const void* s, const int* sn, const int* sd, MPI_Datatype st, void* r, const int* rn, const int* rd,
     MPI_Datatype rt, MPI_Comm comm),
    (s, sn, sd, st, r, rn, rd, rt, comm),
    (s, COUNTS(sn, 0), DISPLS(sd, 0), st, r, COUNTS(rn, 1), DISPLS(rd, 1), rt, comm))
WAY(Alltoallw, Ialltoallw,
    (const void* s, const int* sn, const int* sd, const MPI_Datatype* st, void* r, const int* rn, const int* rd,
     const MPI_Datatype* rt, MPI_Comm comm),
    (s, sn, sd, st, r, rn, rd, rt, comm),
    (s, COUNTS(sn, 0), DISPLS(sd, 0), st, r, COUNTS(rn, 1), DISPLS(rd, 1), rt, comm))

#endif /* TUTTI_TESTS_BINDINGS_MPI_WAYS_H_ */
