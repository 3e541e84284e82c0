// The calls of MPI's C interface that start and complete requests.
#include <sched.h>

#include "interface.h"
#include "persistent.h"
#include "requests.h"

using tutti::mpi::any_requests;
using tutti::mpi::complete_request;
using tutti::mpi::Failures;
using tutti::mpi::Requests;
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

bool is_set(const int* flag) {
  return flag != nullptr && *flag != 0;
}

// The statuses as of_several() takes them.
void* known(MPI_Status* statuses) {
  return statuses == MPI_STATUSES_IGNORE ? nullptr : statuses;
}

// Asks `test` until it has an answer.
// test(Failures &, bool &done) returns an error code of MPI.
template <typename Test>
int poll(int count, const MPI_Request* requests, Test test) {
  while (true) {
    some_run(count, requests);
    bool done = false;
    Failures failures(count, Requests::in_c(requests));
    const int error = test(failures, done);
    if (error != MPI_SUCCESS || done) return error;
    sched_yield();
  }
}

}  // namespace

extern "C" {

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  if (!any_requests() || request == nullptr) return PMPI_Wait(request, status);
  complete_request(*request);
  Failures failures(1, Requests::in_c(request));
  return failures.of_one(PMPI_Wait(request, status), 0);
}

int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  if (!any_requests() || request == nullptr) return PMPI_Test(request, flag, status);
  still_runs(*request);
  Failures failures(1, Requests::in_c(request));
  const int error = PMPI_Test(request, flag, status);
  return is_set(flag) ? failures.of_one(error, 0) : error;
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status* statuses) {
  if (!any_requests()) return PMPI_Waitall(count, requests, statuses);
  for (int at = 0; at < count; ++at) complete_request(requests[at]);
  Failures failures(count, Requests::in_c(requests));
  return failures.of_several(PMPI_Waitall(count, requests, statuses), count, nullptr, 0, known(statuses));
}

int MPI_Testall(int count, MPI_Request requests[], int* flag, MPI_Status* statuses) {
  if (!any_requests()) return PMPI_Testall(count, requests, flag, statuses);
  some_run(count, requests);
  Failures failures(count, Requests::in_c(requests));
  const int error = PMPI_Testall(count, requests, flag, statuses);
  return is_set(flag) ? failures.of_several(error, count, nullptr, 0, known(statuses)) : error;
}

int MPI_Waitany(int count, MPI_Request requests[], int* index, MPI_Status* status) {
  if (!any_requests()) return PMPI_Waitany(count, requests, index, status);
  return poll(count, requests, [&](Failures& failures, bool& done) {
    int flag = 0;
    const int error = PMPI_Testany(count, requests, index, &flag, status);
    done = flag != 0;
    return done ? failures.of_one(error, *index) : error;
  });
}

int MPI_Testany(int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status) {
  if (!any_requests()) return PMPI_Testany(count, requests, index, flag, status);
  some_run(count, requests);
  Failures failures(count, Requests::in_c(requests));
  const int error = PMPI_Testany(count, requests, index, flag, status);
  return is_set(flag) ? failures.of_one(error, *index) : error;
}

int MPI_Waitsome(int count, MPI_Request requests[], int* outcount, int indices[], MPI_Status* statuses) {
  if (!any_requests()) return PMPI_Waitsome(count, requests, outcount, indices, statuses);
  return poll(count, requests, [&](Failures& failures, bool& done) {
    const int error = PMPI_Testsome(count, requests, outcount, indices, statuses);
    done = *outcount != 0;
    return failures.of_several(error, *outcount, indices, 0, known(statuses));
  });
}

int MPI_Testsome(int count, MPI_Request requests[], int* outcount, int indices[], MPI_Status* statuses) {
  if (!any_requests()) return PMPI_Testsome(count, requests, outcount, indices, statuses);
  some_run(count, requests);
  Failures failures(count, Requests::in_c(requests));
  const int error = PMPI_Testsome(count, requests, outcount, indices, statuses);
  return failures.of_several(error, *outcount, indices, 0, known(statuses));
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
