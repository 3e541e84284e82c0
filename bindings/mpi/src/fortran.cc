#include "fortran.h"

#include <algorithm>
#include <array>

#include "persistent.h"
#include "requests.h"

namespace tutti::mpi::fortran {
namespace {

#if !defined(MPICH)
// One for each way in which compilers of Fortran name variables; NULL: there is none.
using Stands = std::array<const void*, 4>;

Stands stands_of(const std::array<const char*, 4>& names) {
  Stands stands{};
  std::transform(names.begin(), names.end(), stands.begin(), find_in_mpi_library);
  return stands;
}

bool is_one_of(const Stands& stands, const void* buffer) {
  return buffer != nullptr && std::find(stands.begin(), stands.end(), buffer) != stands.end();
}
#endif

}  // namespace

#if !defined(MPICH)
void* address(void* buffer) {
  static const Stands kInPlace =
      stands_of({"mpi_fortran_in_place", "mpi_fortran_in_place_", "mpi_fortran_in_place__", "MPI_FORTRAN_IN_PLACE"});
  static const Stands kBottom =
      stands_of({"mpi_fortran_bottom", "mpi_fortran_bottom_", "mpi_fortran_bottom__", "MPI_FORTRAN_BOTTOM"});
  if (is_one_of(kInPlace, buffer)) return MPI_IN_PLACE;
  return is_one_of(kBottom, buffer) ? MPI_BOTTOM : buffer;
}
#endif

void* known(MPI_Fint* statuses) {
#if defined(MPICH)
  // The symbol of mpi_f08: only its functions call this.
  static const void* const kIgnore = find_in_mpi_library("MPIR_F08_MPI_STATUSES_IGNORE_OBJ");
  return statuses == kIgnore ? nullptr : statuses;
#else
  static const Stands kIgnore = stands_of({"mpi_fortran_statuses_ignore", "mpi_fortran_statuses_ignore_",
                                           "mpi_fortran_statuses_ignore__", "MPI_FORTRAN_STATUSES_IGNORE"});
  return is_one_of(kIgnore, statuses) ? nullptr : statuses;
#endif
}

#if defined(MPICH)
int first_index(Testany* testany) {
  static const int kFirst = [testany] {
    const auto query = [](void*, MPI_Status*) { return MPI_SUCCESS; };
    const auto end = [](void*) { return MPI_SUCCESS; };
    const auto cancel = [](void*, int) { return MPI_SUCCESS; };
    MPI_Request made = MPI_REQUEST_NULL;
    PMPI_Grequest_start(query, end, cancel, nullptr, &made);
    PMPI_Grequest_complete(made);
    MPI_Fint request = PMPI_Request_c2f(made);
    MPI_Fint one = 1;
    MPI_Fint index = 1;
    MPI_Fint flag = 0;
    MPI_Fint error = MPI_SUCCESS;
    std::array<MPI_Fint, MPI_F_STATUS_SIZE> status{};
    testany(&one, &request, &index, &flag, status.data(), &error);
    return index;
  }();
  return kFirst;
}
#else
int first_index(Testany* /*testany*/) {
  return 1;
}
#endif

std::vector<MPI_Datatype> types_of(const MPI_Fint* types, MPI_Fint comm, bool significant) {
  const MPI_Comm handle = PMPI_Comm_f2c(comm);
  std::vector<MPI_Datatype> converted;
  int inter = 0;
  int ranks = 0;
  if (!significant || PMPI_Comm_test_inter(handle, &inter) != MPI_SUCCESS) return converted;
  if (inter != 0) {
    PMPI_Comm_remote_size(handle, &ranks);
  } else {
    PMPI_Comm_size(handle, &ranks);
  }
  for (int at = 0; at < ranks; ++at) converted.push_back(PMPI_Type_f2c(types[at]));
  return converted;
}

int start_all(int count, MPI_Fint* requests) {
  for (int at = 0; at < count; ++at) {
    MPI_Request request = PMPI_Request_f2c(requests[at]);
    const int error = start_request(&request);
    if (error != MPI_SUCCESS) return error;
    requests[at] = PMPI_Request_c2f(request);
  }
  return MPI_SUCCESS;
}

void release(const MPI_Fint* request) {
  complete(1, request);
  forget_persistent(PMPI_Request_f2c(*request));
}

void complete(int count, const MPI_Fint* requests) {
  if (!any_requests()) return;
  for (int at = 0; at < count; ++at) complete_request(PMPI_Request_f2c(requests[at]));
}

bool look(int count, const MPI_Fint* requests) {
  if (!any_requests()) return false;
  bool runs = false;
  for (int at = 0; at < count; ++at) {
    if (still_runs(PMPI_Request_f2c(requests[at]))) runs = true;
  }
  return runs;
}

}  // namespace tutti::mpi::fortran
