// Init and finalize, and the communicators that programs make and free, of MPI's C interface.
#include <cstdio>

#include "communicators.h"
#include "config.h"
#include "exceptions.h"
#include "interface.h"
#include "persistent.h"
#include "progress.h"
#include "summary.h"

using tutti::mpi::caught;

namespace {

// MPI_SUCCESS, or that the call has thrown, which the communicator's error handler has been told.
template <typename Call>
int or_raised(MPI_Comm comm, Call call) {
  const int thrown = caught(call);
  return thrown == MPI_SUCCESS ? MPI_SUCCESS : tutti::mpi::raise_error(comm, thrown);
}

// The helper of progress.h needs as much; it costs the MPI libraries nothing.
int init(int* argc, char*** argv, int required, int* provided) {
  tutti::mpi::require_this_kind();
  const bool raise = !tutti::mpi::config().off && required < MPI_THREAD_SERIALIZED;
  const int error = PMPI_Init_thread(argc, argv, raise ? MPI_THREAD_SERIALIZED : required, provided);
  // All ranks are here. So nonblocking calls are served from the first on.
  if (error != MPI_SUCCESS) return error;
  tutti::mpi::agree_on_config();
  int made = MPI_SUCCESS;
  const int thrown = or_raised(MPI_COMM_WORLD, [&] {
    tutti::mpi::Communicator& world = *tutti::mpi::find_communicator(MPI_COMM_WORLD);
    if (world.reason == tutti::mpi::Reason::kFew) made = tutti::mpi::make_tutti(world);
    if (world.reason == tutti::mpi::Reason::kUnreadable) tutti::mpi::leave_all();
  });
  if (made != MPI_SUCCESS) tutti::mpi::raise_error(MPI_COMM_WORLD, made);
  return thrown == MPI_SUCCESS ? made : thrown;
}

}  // namespace

extern "C" {

int MPI_Init(int* argc, char*** argv) {
  int provided = 0;
  return init(argc, argv, MPI_THREAD_SINGLE, &provided);
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  return init(argc, argv, required, provided);
}

#if defined(MPICH)
int MPI_Session_init(MPI_Info info, MPI_Errhandler errhandler, MPI_Session* session) {
  tutti::mpi::require_this_kind();
  return PMPI_Session_init(info, errhandler, session);
}
#endif

int MPI_Finalize() {
  tutti::mpi::end_in_turn();
  tutti::mpi::forget_all_persistents();
  tutti::mpi::forget_all_communicators();
  tutti::mpi::stop_progress();
  if (tutti::mpi::config().summary) tutti::mpi::print_summary();
  return PMPI_Finalize();
}

int MPI_Comm_free(MPI_Comm* comm) {
  // MPI refuses to end the world, which goes on.
  if (comm != nullptr && *comm != MPI_COMM_WORLD) tutti::mpi::forget_communicator(*comm);
  return PMPI_Comm_free(comm);
}

int MPI_Comm_disconnect(MPI_Comm* comm) {
  if (comm != nullptr && *comm != MPI_COMM_WORLD) tutti::mpi::forget_communicator(*comm);
  return PMPI_Comm_disconnect(comm);
}

#if !defined(MPICH)
// Of Open MPI 5; mpi-ext.h of Open MPI 4 lacks it.
int PMPIX_Comm_revoke(MPI_Comm comm);
#pragma GCC visibility push(default)
int MPIX_Comm_revoke(MPI_Comm comm) {
  if (TUTTI_MPI_LACKS(PMPIX_Comm_revoke)) return tutti::mpi::report_lack(comm);
  const int error = TUTTI_MPI_FUNCTION(PMPIX_Comm_revoke)(comm);
  if (tutti::mpi::config().recovers) tutti::mpi::heed_revocations();
  return error;
}
#pragma GCC visibility pop
#endif

}  // extern "C"
