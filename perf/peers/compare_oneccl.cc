// Worker of perf/compare for oneCCL on host memory, built where tools/install_peers has put that.
// Usage: mpiexec -n RANKS compare_worker SOCKET, with the mpiexec of Intel MPI, by which oneCCL's ranks meet.
#include <mpi.h>

#include <exception>
#include <memory>
#include <oneapi/ccl.hpp>

#include "compare_worker.h"

// oneCCL's archive for processors is meant to be linked with Intel's tracing library, which it calls through these
// where they are set.
extern "C" {
void* __itt_domain_create_ptr__3_0;
void* __itt_event_create_ptr__3_0;
void* __itt_event_end_ptr__3_0;
void* __itt_event_start_ptr__3_0;
void* __itt_metadata_add_ptr__3_0;
void* __itt_string_handle_create_ptr__3_0;
void* __itt_task_begin_ptr__3_0;
void* __itt_task_end_ptr__3_0;
void* __itt_thread_set_name_ptr__3_0;
}

namespace {

int perform(void* state, const compare_call* call) {
  auto& comm = *static_cast<ccl::communicator*>(state);
  const auto type = ccl::datatype::float32;
  try {
    switch (call->collective) {
      case kCompareAllReduce:
        ccl::allreduce(call->send, call->recv, call->count, type, ccl::reduction::sum, comm).wait();
        return 0;
      case kCompareReduceScatter:
        ccl::reduce_scatter(call->send, call->recv, call->count, type, ccl::reduction::sum, comm).wait();
        return 0;
      case kCompareAllGather: ccl::allgather(call->send, call->recv, call->count, type, comm).wait(); return 0;
      case kCompareBroadcast: ccl::broadcast(call->recv, call->count, type, 0, comm).wait(); return 0;
      case kCompareReduce:
        ccl::reduce(call->send, call->recv, call->count, type, ccl::reduction::sum, 0, comm).wait();
        return 0;
      case kCompareBarrier: ccl::barrier(comm); return 0;
      case kCompareScatter: ccl::scatter(call->send, call->recv, call->count, type, 0, comm).wait(); return 0;
      case kCompareAllToAll: ccl::alltoall(call->send, call->recv, call->count, type, comm).wait(); return 0;
      default:
        return -1;  // oneCCL has no gather and no scans; blocks of different counts and transfers are not measured
    }
  } catch (const std::exception& error) {
    fprintf(stderr, "oneccl: %s\n", error.what());
    return -1;
  }
}

ccl::communicator meet(int rank, int size) {
  ccl::shared_ptr_class<ccl::kvs> store;
  ccl::kvs::address_type address;
  if (rank == 0) {
    store = ccl::create_main_kvs();
    address = store->get_address();
  }
  MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank != 0) store = ccl::create_kvs(address);
  return ccl::create_communicator(size, rank, store);
}

int serve(const char* socket_path) {
  ccl::init();
  compare_library library{};
  MPI_Comm_rank(MPI_COMM_WORLD, &library.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &library.size);
  ccl::communicator comm = meet(library.rank, library.size);
  const auto version = ccl::get_library_version();
  library.name = "oneccl";
  library.version = version.full;
  library.state = &comm;
  library.allocate = compare_malloc;
  library.release = compare_free;
  library.perform = perform;
  return compare_serve(socket_path, &library);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 2) {
    fprintf(stderr, "usage: mpiexec -n RANKS %s SOCKET (started by perf/compare)\n", argv[0]);
    return 2;
  }
  int status = 1;
  try {
    status = serve(argv[1]);
  } catch (const std::exception& error) {
    fprintf(stderr, "oneccl: %s\n", error.what());
  }
  MPI_Finalize();
  return status;
}
