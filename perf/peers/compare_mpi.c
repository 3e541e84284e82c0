/* Worker of perf/compare for Open MPI and MPICH: the same file, compiled by each one's mpicc.
 * Usage: mpirun -n RANKS compare_mpi SOCKET */
#include <mpi.h>

#include "compare_worker.h"

struct mpi_state {
  int rank;
  int size;
  /* Of the blocks of the call, as MPI takes them. */
  int counts[kCompareMaxRanks];
  int begins[kCompareMaxRanks];
};

static int prepare(void* state, const struct compare_call* call) {
  struct mpi_state* const mpi = (struct mpi_state*)state;
  int rank;
  if (!compare_has_blocks(call->collective)) return 0;
  for (rank = 0; rank < mpi->size; ++rank) {
    mpi->counts[rank] = (int)call->counts[rank];
    mpi->begins[rank] = (int)call->begins[rank];
  }
  return 0;
}

static int exchange(const struct mpi_state* mpi, const struct compare_call* call) {
  const int next = (mpi->rank + 1) % mpi->size;
  const int before = (mpi->rank + mpi->size - 1) % mpi->size;
  return MPI_Sendrecv(call->send, (int)call->count, MPI_FLOAT, next, 0, call->recv, (int)call->count, MPI_FLOAT, before,
                      0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int ping_pong(const struct mpi_state* mpi, const struct compare_call* call) {
  const int count = (int)call->count;
  const int peer = 1 - mpi->rank;
  if (mpi->rank == 0) MPI_Send(call->send, count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
  MPI_Recv(call->recv, count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (mpi->rank != 0) MPI_Send(call->send, count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
  return 0;
}

/* Blocks of different counts. */
static int perform_varying(const struct mpi_state* mpi, const struct compare_call* call) {
  const int* const counts = mpi->counts;
  const int* const begins = mpi->begins;
  const int own = counts[mpi->rank];
  switch (call->collective) {
    case kCompareAllGatherV:
      return MPI_Allgatherv(call->send, own, MPI_FLOAT, call->recv, counts, begins, MPI_FLOAT, MPI_COMM_WORLD);
    case kCompareReduceScatterV:
      return MPI_Reduce_scatter(call->send, call->recv, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    case kCompareGatherV:
      return MPI_Gatherv(call->send, own, MPI_FLOAT, call->recv, counts, begins, MPI_FLOAT, 0, MPI_COMM_WORLD);
    case kCompareScatterV:
      return MPI_Scatterv(call->send, counts, begins, MPI_FLOAT, call->recv, own, MPI_FLOAT, 0, MPI_COMM_WORLD);
    case kCompareAllToAllV:
      return MPI_Alltoallv(call->send, counts, begins, MPI_FLOAT, call->recv, counts, begins, MPI_FLOAT,
                           MPI_COMM_WORLD);
    default: return -1;
  }
}

static int perform(void* state, const struct compare_call* call) {
  const struct mpi_state* const mpi = (const struct mpi_state*)state;
  const int count = (int)call->count;
  switch (call->collective) {
    case kCompareAllReduce: return MPI_Allreduce(call->send, call->recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    case kCompareReduceScatter:
      return MPI_Reduce_scatter_block(call->send, call->recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    case kCompareAllGather:
      return MPI_Allgather(call->send, count, MPI_FLOAT, call->recv, count, MPI_FLOAT, MPI_COMM_WORLD);
    case kCompareBroadcast: return MPI_Bcast(call->recv, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    case kCompareReduce: return MPI_Reduce(call->send, call->recv, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    case kCompareBarrier: return MPI_Barrier(MPI_COMM_WORLD);
    case kCompareGather:
      return MPI_Gather(call->send, count, MPI_FLOAT, call->recv, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    case kCompareScatter:
      return MPI_Scatter(call->send, count, MPI_FLOAT, call->recv, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    case kCompareAllToAll:
      return MPI_Alltoall(call->send, count, MPI_FLOAT, call->recv, count, MPI_FLOAT, MPI_COMM_WORLD);
    case kCompareScan: return MPI_Scan(call->send, call->recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    case kCompareExscan: return MPI_Exscan(call->send, call->recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    case kCompareSendRecv: return exchange(mpi, call);
    case kComparePingPong: return ping_pong(mpi, call);
    default: return perform_varying(mpi, call);
  }
}

int main(int argc, char** argv) {
  static struct mpi_state mpi;
  struct compare_library library;
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  int status;
  MPI_Init(&argc, &argv);
  if (argc != 2) {
    fprintf(stderr, "usage: mpirun -n RANKS %s SOCKET (started by perf/compare)\n", argv[0]);
    MPI_Finalize();
    return 2;
  }
  MPI_Get_library_version(version, &length);
  version[strcspn(version, ",\n")] = '\0';
  memset(&library, 0, sizeof library);
  library.name = "mpi";
  library.version = version;
  MPI_Comm_rank(MPI_COMM_WORLD, &library.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &library.size);
  mpi.rank = library.rank;
  mpi.size = library.size;
  library.state = &mpi;
  library.prepare = prepare;
  library.allocate = compare_malloc;
  library.release = compare_free;
  library.perform = perform;
  status = compare_serve(argv[1], &library);
  MPI_Finalize();
  return status;
}
