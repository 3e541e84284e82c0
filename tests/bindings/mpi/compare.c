/* Compares the binding's result of each collective with the MPI library's: MPI_X against PMPI_X in one process, on
 * random communicators, counts, datatypes, operators and roots. Usage: compare SEED ROUNDS. */
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "ways.h"

enum { kMostRanks = 8, kMostBytes = 1 << 20 };

static uint64_t state;
static int world_rank;
static long wrong;

/* The same on all ranks, as long as all make the same calls. */
static unsigned draw(unsigned below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(state >> 33) % below;
}

static int draw_count(void) {
  const unsigned kind = draw(8);
  if (kind == 0) return 0;
  if (kind < 5) return 1 + (int)draw(16);
  return 1 + (int)draw(kind == 5 ? 3000 : 300);
}

/* ---- Buffers ---- */
static unsigned char *sent, *sent_again, *got, *expected;

/* Small numbers for every type of the bytes: sums of floats are exact, products do not overflow far. */
static void fill(MPI_Datatype type, unsigned salt) {
  uint64_t own = (state ^ salt) * 0x9e3779b97f4a7c15u + (uint64_t)world_rank;
  for (int at = 0; at < kMostBytes; ++at) {
    own = own * 6364136223846793005u + 1442695040888963407u;
    sent[at] = (unsigned char)((own >> 40) % 5);
  }
  if (type == MPI_FLOAT) {
    for (int at = 0; at < kMostBytes / 4; ++at) ((float*)sent)[at] = (float)sent[at % 1000];
  } else if (type == MPI_DOUBLE || type == MPI_C_DOUBLE_COMPLEX) {
    for (int at = kMostBytes / 8 - 1; at >= 0; --at) ((double*)sent)[at] = (double)(at * 7 + world_rank) * 0.5;
  } else if (type == MPI_LONG_DOUBLE) {
    for (int at = kMostBytes / 16 - 1; at >= 0; --at) ((long double*)sent)[at] = (long double)(at * 7 + world_rank);
  } else if (type == MPI_DOUBLE_INT) {
    for (int at = kMostBytes / 16 - 1; at >= 0; --at) {
      const int both[2] = {world_rank, 0};
      ((double*)sent)[2 * at] = (double)((at * 7 + world_rank * 3) % 5);
      memcpy(sent + 16 * at + 8, both, 8);
    }
  } else if (type == MPI_LONG_DOUBLE_INT) {
    for (int at = kMostBytes / 32 - 1; at >= 0; --at) {
      ((long double*)sent)[2 * at] = (long double)((at * 7 + world_rank * 3) % 5);
      ((int*)sent)[8 * at + 4] = world_rank;
    }
  } else if (type == MPI_C_BOOL) {
    for (int at = 0; at < kMostBytes; ++at) sent[at] &= 1;
  }
  memcpy(sent_again, sent, kMostBytes);
}

/* Both receive buffers begin with the same bytes; in place, with the input. */
static void reset(int in_place) {
  if (in_place) {
    memcpy(got, sent, kMostBytes);
  } else {
    memset(got, 0xa5, kMostBytes);
  }
  memcpy(expected, got, kMostBytes);
}

enum { margin = 1024 }; /* before the buffers: datatypes may reach there */

static void check(const char* call, const char* what, size_t bytes) {
  /* Six bytes of a long double are padding. */
  const int padded = strstr(what, "long double") != NULL;
  for (size_t at = 0; at < bytes; ++at) {
    if (got[at] != expected[at] && !(padded && (at - margin) % 16 >= 10)) {
      if (++wrong < 20) {
        fprintf(stderr, "rank %d: %s, %s: byte %zu is %d, not %d\n", world_rank, call, what, at, got[at], expected[at]);
      }
      return;
    }
  }
  if (memcmp(sent, sent_again, kMostBytes) != 0 && ++wrong < 20) {
    fprintf(stderr, "rank %d: %s, %s: has written what it sends\n", world_rank, call, what);
  }
}

/* Runs CALL to `got`, in place or not, and PMPI_CALL to `expected`, never in place, which some MPI libraries do
 * wrong. The arguments name `from` and `to`; the input is at `source`. */
#define BOTH(CALL)                           \
  do {                                       \
    from = in_place ? MPI_IN_PLACE : source; \
    to = got + margin;                       \
    way_##CALL;                              \
    from = source;                           \
    to = expected + margin;                  \
    PMPI_##CALL;                             \
  } while (0)

/* MPICH 4.0 writes past buffers in reduce-scatters with operators that do not commute: its other functions replace
 * them. tutti does not serve nonblocking ones with functions, so they are not drawn. */
static void reduce_and_scatter(const int* counts, Reduction r, MPI_Comm comm, int ranks) {
  static unsigned char whole[kMostBytes];
  int displs[kMostRanks];
  int rank = 0;
  int total = 0;
  MPI_Comm_rank(comm, &rank);
  for (int at = 0; at < ranks; ++at) {
    displs[at] = total;
    total += counts[at];
  }
  memcpy(whole, sent + margin, kMostBytes - margin);
  PMPI_Reduce(sent + margin, whole, total, r.type, r.op, 0, comm);
  PMPI_Scatterv(whole, counts, displs, r.type, expected + margin, counts[rank], r.type, 0, comm);
}

static void reduce_once(MPI_Comm comm, int rank, int ranks) {
  const Reduction r = reductions[draw((unsigned)reduction_count)];
  const int count = draw_count();
  int in_place = (int)draw(2);
  const int root = (int)draw((unsigned)ranks);
  const unsigned which = draw(6);
  void* to = NULL;
  const void* from = NULL;
  const unsigned char* const source = sent + margin;
  int counts[kMostRanks];
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  size_t bytes = 0;
  int commutes = 0;
  for (int at = 0; at < ranks; ++at) counts[at] = (int)draw(2) * draw_count() / 4;
  MPI_Type_get_extent(r.type, &lower, &extent);
  PMPI_Op_commutative(r.op, &commutes);
  blocking_only = !commutes && which >= 4;
  fill(r.type, which);
  reset(in_place);
  bytes = (size_t)count * (size_t)extent + margin;
  switch (which) {
    case 0:
      BOTH(Allreduce(from, to, count, r.type, r.op, comm));
      check("allreduce", r.name, bytes);
      break;
    case 1:
      if (rank != root) in_place = 0;
      BOTH(Reduce(from, to, count, r.type, r.op, root, comm));
      check("reduce", r.name, rank == root ? bytes : 0);
      break;
    case 2:
      BOTH(Scan(from, to, count, r.type, r.op, comm));
      check("scan", r.name, bytes);
      break;
    case 3:
      BOTH(Exscan(from, to, count, r.type, r.op, comm));
      check("exscan", r.name, rank > 0 ? bytes : 0);
      break;
    case 4:
      for (int at = 0; at < ranks; ++at) counts[at] = count / 8;
      way_Reduce_scatter_block(in_place ? MPI_IN_PLACE : source, got + margin, count / 8, r.type, r.op, comm);
      reduce_and_scatter(counts, r, comm, ranks);
      check("reduce_scatter_block", r.name, (size_t)(count / 8) * (size_t)extent + margin);
      break;
    default:
      way_Reduce_scatter(in_place ? MPI_IN_PLACE : source, got + margin, counts, r.type, r.op, comm);
      reduce_and_scatter(counts, r, comm, ranks);
      check("reduce_scatter", r.name, (size_t)counts[rank] * (size_t)extent + margin);
      break;
  }
  blocking_only = 0;
}

static void move_once(MPI_Comm comm, int rank, int ranks) {
  const Type t = types[draw((unsigned)type_count)];
  const int count = draw_count() / 8;
  int in_place = (int)draw(2);
  const int root = (int)draw((unsigned)ranks);
  void* to = NULL;
  const void* from = NULL;
  const unsigned char* source = sent + margin;
  const unsigned which = draw(6);
  fill(t.type, which);
  reset(in_place);
  switch (which) {
    case 0:
      reset(1);
      BOTH(Bcast(to, count, t.type, root, comm));
      check("bcast", t.name, kMostBytes);
      break;
    case 1:
      if (in_place) source += rank * count * t.extent;
      BOTH(Allgather(from, count, t.type, to, count, t.type, comm));
      check("allgather", t.name, kMostBytes);
      break;
    case 2:
      if (rank != root) in_place = 0;
      if (in_place) source += rank * count * t.extent;
      BOTH(Gather(from, count, t.type, to, count, t.type, root, comm));
      check("gather", t.name, kMostBytes);
      break;
    case 3:
      BOTH(Scatter(source, count, t.type, in_place && rank == root ? MPI_IN_PLACE : to, count, t.type, root, comm));
      check("scatter", t.name, kMostBytes);
      break;
    case 4:
      BOTH(Alltoall(from, count, t.type, to, count, t.type, comm));
      check("alltoall", t.name, kMostBytes);
      break;
    default: MPI_Barrier(comm); break;
  }
}

static void vary_once(MPI_Comm comm, int rank, int ranks) {
  const Type t = types[draw((unsigned)type_count)];
  int in_place = (int)draw(2);
  const int root = (int)draw((unsigned)ranks);
  const unsigned which = draw(5);
  int matrix[kMostRanks][kMostRanks];
  int counts[kMostRanks], displs[kMostRanks], send_counts[kMostRanks], send_displs[kMostRanks];
  int own_counts[kMostRanks], own_displs[kMostRanks];
  MPI_Datatype all_types[kMostRanks];
  void* to = NULL;
  const void* from = NULL;
  const unsigned char* source = sent + margin;
  for (int a = 0; a < ranks; ++a) {
    counts[a] = (int)draw(2) * (int)draw(90);
    for (int b = 0; b < ranks; ++b) matrix[a][b] = in_place && b < a ? matrix[b][a] : (int)draw(3) * (int)draw(40);
  }
  /* Blocks in reverse order, with gaps. */
  /* MPICH 4.0 overlooks the displacement in an all-gather of one rank. */
  for (int a = ranks - 1, at = ranks > 1 ? 3 : 0; a >= 0; --a) {
    displs[a] = at;
    at += counts[a] + 2;
  }
  for (int a = ranks - 1, at = 1, own = 2; a >= 0; --a) {
    send_counts[a] = matrix[rank][a];
    send_displs[a] = own;
    own += matrix[rank][a] + 1;
    own_counts[a] = matrix[a][rank];
    own_displs[a] = at;
    at += matrix[a][rank] + 1;
    all_types[a] = t.type;
  }
  fill(t.type, which);
  reset(in_place);
  if (in_place && which >= 3) {
    memcpy(send_counts, own_counts, sizeof send_counts);
    memcpy(send_displs, own_displs, sizeof send_displs);
  }
  switch (which) {
    case 0:
      if (in_place) source += displs[rank] * t.extent;
      BOTH(Allgatherv(from, counts[rank], t.type, to, counts, displs, t.type, comm));
      check("allgatherv", t.name, kMostBytes);
      break;
    case 1:
      if (rank != root) in_place = 0;
      if (in_place) source += displs[rank] * t.extent;
      BOTH(Gatherv(from, counts[rank], t.type, to, rank == root ? counts : NULL, rank == root ? displs : NULL, t.type,
                   root, comm));
      check("gatherv", t.name, kMostBytes);
      break;
    case 2:
      BOTH(Scatterv(source, rank == root ? counts : NULL, rank == root ? displs : NULL, t.type,
                    in_place && rank == root ? MPI_IN_PLACE : to, counts[rank], t.type, root, comm));
      check("scatterv", t.name, kMostBytes);
      break;
    case 3:
      BOTH(Alltoallv(from, send_counts, send_displs, t.type, to, own_counts, own_displs, t.type, comm));
      check("alltoallv", t.name, kMostBytes);
      break;
    default:
      for (int a = 0; a < ranks; ++a) {
        send_displs[a] *= (int)t.extent;
        own_displs[a] *= (int)t.extent;
      }
      BOTH(Alltoallw(from, send_counts, send_displs, all_types, to, own_counts, own_displs, all_types, comm));
      check("alltoallw", t.name, kMostBytes);
      break;
  }
}

/* Ranks describe the exchanged data differently, with the same signatures. */
static void mix_once(MPI_Comm comm, int rank, int ranks) {
  const int in_place = 0;
  const void* from = NULL;
  const unsigned char* const source = sent;
  MPI_Datatype vector = MPI_DATATYPE_NULL;
  const int root = (int)draw((unsigned)ranks);
  const int odd = rank % 2;
  void* to = NULL;
  MPI_Type_vector(4, 1, 3, MPI_INT, &vector);
  MPI_Type_commit(&vector);
  fill(MPI_INT, 1);
  reset(1);
  BOTH(Bcast(to, odd ? 7 : 28, odd ? vector : MPI_INT, root, comm));
  check("bcast", "vector here, ints there", kMostBytes);
  reset(0);
  BOTH(Allgather(from, odd ? 28 : 7, odd ? MPI_INT : vector, to, odd ? 7 : 28, odd ? vector : MPI_INT, comm));
  check("allgather", "vector here, ints there", kMostBytes);
  MPI_Type_free(&vector);
}

static void all_of(MPI_Comm comm, int rounds) {
  int rank = 0;
  int ranks = 0;
  if (comm == MPI_COMM_NULL) return;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  for (int round = 0; round < rounds; ++round) {
    switch (draw(5)) {
      case 0:
      case 1: reduce_once(comm, rank, ranks); break;
      case 2: move_once(comm, rank, ranks); break;
      case 3: vary_once(comm, rank, ranks); break;
      default: mix_once(comm, rank, ranks); break;
    }
  }
}

/* Communicators made in every way, and freed, so that handles are reused. */
static void communicators(int round) {
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Comm inner = MPI_COMM_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group part = MPI_GROUP_NULL;
  int ranks = 0;
  const uint64_t before = state;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_dup(MPI_COMM_WORLD, &made);
  all_of(made, 4);
  MPI_Comm_free(&made);
  /* Ranks draw the same numbers in each part, and all ranks together again from here on. */
  MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, -world_rank, &made);
  all_of(made, 4);
  MPI_Comm_split(made, world_rank < 2 ? 0 : MPI_UNDEFINED, 0, &inner);
  all_of(inner, 2);
  if (inner != MPI_COMM_NULL) MPI_Comm_free(&inner);
  MPI_Comm_free(&made);
  state = before + (unsigned)round + 1;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made);
  all_of(made, 2);
  MPI_Comm_free(&made);
  MPI_Comm_group(MPI_COMM_WORLD, &group);
  MPI_Group_excl(group, ranks > 1 ? 1 : 0, (const int[]){0}, &part);
  MPI_Comm_create(MPI_COMM_WORLD, part, &made);
  all_of(made, 2);
  if (made != MPI_COMM_NULL) MPI_Comm_free(&made);
  if (ranks == 1 || world_rank > 0) {
    MPI_Comm_create_group(MPI_COMM_WORLD, part, 5, &made);
    all_of(made, 2);
    MPI_Comm_free(&made);
  }
  MPI_Group_free(&part);
  MPI_Group_free(&group);
  state = before + 7 * (unsigned)round + 3;
  all_of(MPI_COMM_SELF, 3);
}

int main(int argc, char** argv) {
  const int rounds = argc > 2 ? atoi(argv[2]) : 5;
  long all_wrong = 0;
  int rank = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  rank = world_rank;
  state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  sent = malloc(kMostBytes);
  sent_again = malloc(kMostBytes);
  got = malloc(kMostBytes);
  expected = malloc(kMostBytes);
  make_types();
  make_reductions();
  for (int round = 0; round < rounds; ++round) {
    all_of(MPI_COMM_WORLD, 20);
    communicators(round);
  }
  PMPI_Allreduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%ld differ\n", all_wrong);
  for (int at = 0; at < type_count; ++at) {
    if (types[at].derived) MPI_Type_free(&types[at].type);
  }
  MPI_Type_free(&matrix_type);
  for (int at = 0; at < 3; ++at) MPI_Op_free(&own_ops[at]);
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}
