#include "recovery.h"

#include <chrono>
#include <string_view>
#include <thread>

#include "communicators.h"
#include "config.h"
#include "progress.h"

#if !defined(MPICH)
// mpi-ext.h of Open MPI 5 has these; the binding may be built with the headers of Open MPI 4.
extern "C" {
int PMPIX_Comm_agree(MPI_Comm comm, int* flag);
int PMPIX_Comm_get_failed(MPI_Comm comm, MPI_Group* failed);
int PMPIX_Comm_is_revoked(MPI_Comm comm, int* flag);
int PMPIX_Comm_shrink(MPI_Comm comm, MPI_Comm* shrunk);
}
#define PMPIX_Comm_agree TUTTI_MPI_FUNCTION(PMPIX_Comm_agree)
#define PMPIX_Comm_get_failed TUTTI_MPI_FUNCTION(PMPIX_Comm_get_failed)
#define PMPIX_Comm_is_revoked TUTTI_MPI_FUNCTION(PMPIX_Comm_is_revoked)
#define PMPIX_Comm_shrink TUTTI_MPI_FUNCTION(PMPIX_Comm_shrink)
#endif

namespace tutti::mpi {
namespace {

#if defined(MPICH)
constexpr int kProcessFailed = MPIX_ERR_PROC_FAILED;
constexpr int kRevoked = MPIX_ERR_REVOKED;
#else
// As mpi.h of Open MPI 5 has them.
constexpr int kProcessFailed = 75;
constexpr int kRevoked = 77;
#endif

// As the control connections of tutti report it, on all ranks.
bool tells_of_death(tuttiResult_t result, std::string_view text) {
  return result == tuttiRemoteError && text.find(" died: ") != std::string_view::npos;
}

#if !defined(MPICH)
bool knows_dead(MPI_Comm comm) {
  MPI_Group dead = MPI_GROUP_NULL;
  if (PMPIX_Comm_get_failed(comm, &dead) != MPI_SUCCESS) return false;
  int count = 0;
  PMPI_Group_size(dead, &count);
  PMPI_Group_free(&dead);
  return count > 0;
}

// Lets the MPI library make progress until `known()`, for at most a second. True if it is.
template <typename Known>
bool await(Known known) {
  constexpr auto kLongest = std::chrono::seconds(1);
  constexpr auto kPause = std::chrono::microseconds(200);
  const auto end = std::chrono::steady_clock::now() + kLongest;
  while (!known()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    progress_once();
    std::this_thread::sleep_for(kPause);
  }
  return true;
}
#endif

}  // namespace

#if defined(MPICH)
bool library_recovers() {
  return false;
}

bool hold_all(MPI_Comm /*comm*/, bool holds) {
  return holds;
}

bool is_revoked(MPI_Comm /*comm*/) {
  return false;
}

int class_of_recoverable(const Communicator& /*communicator*/, tuttiResult_t result, std::string_view text) {
  return tells_of_death(result, text) ? kProcessFailed : MPI_SUCCESS;
}

MPI_Comm living_world() {
  return MPI_COMM_WORLD;
}

void free_living_world(MPI_Comm /*living*/) {}
#else
bool library_recovers() {
  // As ompi/runtime/params.h has it.
  const auto* const enabled = static_cast<const bool*>(find_in_mpi_library("ompi_ftmpi_enabled"));
  return enabled != nullptr && *enabled && find_in_mpi_library("PMPIX_Comm_is_revoked") != nullptr;
}

bool hold_all(MPI_Comm comm, bool holds) {
  if (!config().recovers) return holds;
  int flag = holds && !knows_dead(comm) ? 1 : 0;
  return PMPIX_Comm_agree(comm, &flag) == MPI_SUCCESS && flag != 0;
}

bool is_revoked(MPI_Comm comm) {
  int flag = 0;
  return config().recovers && PMPIX_Comm_is_revoked(comm, &flag) == MPI_SUCCESS && flag != 0;
}

int class_of_recoverable(const Communicator& communicator, tuttiResult_t result, std::string_view text) {
  const MPI_Comm comm = communicator.handle;
  if (!config().recovers) return MPI_SUCCESS;
  // One that the program has freed is a stand-in now, of which the MPI library learns nothing.
  const bool waits = !communicator.outlived && (result == tuttiAborted || result == tuttiRemoteError);
  if (waits) await([&] { return is_revoked(comm) || (result == tuttiRemoteError && knows_dead(comm)); });
  if (result == tuttiAborted || is_revoked(comm)) return kRevoked;
  return tells_of_death(result, text) || knows_dead(comm) ? kProcessFailed : MPI_SUCCESS;
}

MPI_Comm living_world() {
  if (!config().recovers) return MPI_COMM_WORLD;
  MPI_Comm living = MPI_COMM_NULL;
  const ErrorsReturned returned(MPI_COMM_WORLD);
  return PMPIX_Comm_shrink(MPI_COMM_WORLD, &living) == MPI_SUCCESS ? living : MPI_COMM_NULL;
}

void free_living_world(MPI_Comm living) {
  if (living != MPI_COMM_WORLD && living != MPI_COMM_NULL) PMPI_Comm_free(&living);
}
#endif

int agree_on(MPI_Comm comm, int& flag) {
#if !defined(MPICH)
  if (config().recovers) return PMPIX_Comm_agree(comm, &flag);
#endif
  const int mine = flag;
  return PMPI_Allreduce(&mine, &flag, 1, MPI_INT, MPI_BAND, comm);
}

bool is_revocation(int error_class) {
  return error_class == kRevoked;
}

bool is_recoverable(int error) {
  int kind = MPI_SUCCESS;
  return config().recovers && PMPI_Error_class(error, &kind) == MPI_SUCCESS &&
         (kind == kProcessFailed || kind == kRevoked);
}

ErrorsReturned::ErrorsReturned(MPI_Comm comm) : comm_(comm) {
  if (PMPI_Comm_get_errhandler(comm, &handler_) == MPI_SUCCESS) PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

ErrorsReturned::~ErrorsReturned() {
  if (handler_ == MPI_ERRHANDLER_NULL) return;
  PMPI_Comm_set_errhandler(comm_, handler_);
  PMPI_Errhandler_free(&handler_);
}

}  // namespace tutti::mpi
