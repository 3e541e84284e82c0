/* Worker of perf/compare for Open MPI and MPICH: the same file, compiled by each one's mpicc.
 * Usage: mpirun -n RANKS compare_mpi SOCKET */
#include <mpi.h>

#include "compare_worker.h"

static int perform(void* state, const struct compare_call* call) {
  const int count = (int)call->count;
  (void)state;
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
    default: return -1;
  }
}

int main(int argc, char** argv) {
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
  library.allocate = compare_malloc;
  library.release = compare_free;
  library.perform = perform;
  status = compare_serve(argv[1], &library);
  MPI_Finalize();
  return status;
}
