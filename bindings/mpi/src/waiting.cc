// The calls of MPI's C interface that start and complete requests.
#include <sched.h>

#include "interface.h"
#include "persistent.h"
#include "requests.h"

using tutti::mpi::any_requests;
using tutti::mpi::complete_request;
using tutti::mpi::still_runs;

namespace {

// Completes those that have finished. True if one of the binding's still runs.
bool some_run(int count, const MPI_Request* requests) {
  bool runs = false;
  for (int at = 0; at < count; ++at) {
    if (still_runs(requests[at])) runs = true;
  }
  return runs;
}

// Asks `test` until it has an answer, which it has at once where none of the requests is the binding's.
template <typename Test>
int poll(int count, const MPI_Request* requests, Test test) {
  while (true) {
    some_run(count, requests);
    bool done = false;
    const int error = test(done);
    if (error != MPI_SUCCESS || done) return error;
    sched_yield();
  }
}

}  // namespace

extern "C" {

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  if (any_requests() && request != nullptr) complete_request(*request);
  return PMPI_Wait(request, status);
}

int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  if (any_requests() && request != nullptr) still_runs(*request);
  return PMPI_Test(request, flag, status);
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status* statuses) {
  if (any_requests()) {
    for (int at = 0; at < count; ++at) complete_request(requests[at]);
  }
  return PMPI_Waitall(count, requests, statuses);
}

int MPI_Testall(int count, MPI_Request requests[], int* flag, MPI_Status* statuses) {
  if (any_requests()) some_run(count, requests);
  return PMPI_Testall(count, requests, flag, statuses);
}

int MPI_Waitany(int count, MPI_Request requests[], int* index, MPI_Status* status) {
  if (!any_requests() || !some_run(count, requests)) return PMPI_Waitany(count, requests, index, status);
  return poll(count, requests, [&](bool& done) {
    int flag = 0;
    const int error = PMPI_Testany(count, requests, index, &flag, status);
    done = flag != 0;
    return error;
  });
}

int MPI_Testany(int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status) {
  if (any_requests()) some_run(count, requests);
  return PMPI_Testany(count, requests, index, flag, status);
}

int MPI_Waitsome(int count, MPI_Request requests[], int* outcount, int indices[], MPI_Status* statuses) {
  if (!any_requests() || !some_run(count, requests)) {
    return PMPI_Waitsome(count, requests, outcount, indices, statuses);
  }
  return poll(count, requests, [&](bool& done) {
    const int error = PMPI_Testsome(count, requests, outcount, indices, statuses);
    done = *outcount != 0;
    return error;
  });
}

int MPI_Testsome(int count, MPI_Request requests[], int* outcount, int indices[], MPI_Status* statuses) {
  if (any_requests()) some_run(count, requests);
  return PMPI_Testsome(count, requests, outcount, indices, statuses);
}

int MPI_Start(MPI_Request* request) {
  return tutti::mpi::start_request(request);
}

int MPI_Startall(int count, MPI_Request requests[]) {
  if (tutti::mpi::live_persistents.load(std::memory_order_acquire) == 0) return PMPI_Startall(count, requests);
  for (int at = 0; at < count; ++at) {
    const int error = tutti::mpi::start_request(&requests[at]);
    if (error != MPI_SUCCESS) return error;
  }
  return MPI_SUCCESS;
}

int MPI_Request_free(MPI_Request* request) {
  // An error of the program's for collectives; it must not leave the request without an end.
  if (any_requests() && request != nullptr) complete_request(*request);
  if (request != nullptr) tutti::mpi::forget_persistent(*request);
  return PMPI_Request_free(request);
}

int MPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  if (any_requests()) still_runs(request);
  return PMPI_Request_get_status(request, flag, status);
}

}  // extern "C"
