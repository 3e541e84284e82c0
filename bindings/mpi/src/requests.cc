#include "requests.h"

#include <sched.h>

#include <mutex>
#include <vector>

#include "persistent.h"
#include "progress.h"

namespace tutti::mpi {

std::atomic<int> live_requests{0};

namespace {

// What MPI asks when the request is complete.
struct Answer {
  int error = MPI_SUCCESS;
};

struct Pending {
  MPI_Request request = MPI_REQUEST_NULL;
  std::unique_ptr<Work> work;
  tuttiEvent_t event = nullptr;
  Answer* answer = nullptr;                // MPI's, until it frees the request
  const Persistent* persistent = nullptr;  // in place of an answer
};

struct Table {
  std::mutex mutex;
  std::vector<Pending> pending;
};
Table& table() {
  static auto* const kTable = new Table;
  return *kTable;
}

int on_query(void* state, MPI_Status* status) {
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return static_cast<Answer*>(state)->error;
}

int on_free(void* state) {
  delete static_cast<Answer*>(state);
  return MPI_SUCCESS;
}

// Collectives cannot be cancelled.
int on_cancel(void* /*state*/, int /*complete*/) {
  return MPI_SUCCESS;
}

// Without the lock: MPI may call the program's error handler.
void settle(Pending pending, tuttiResult_t result) {
  tuttiEventDestroy(pending.event);
  const Communicator& communicator = pending.work->communicator();
  const int error = result == tuttiSuccess ? pending.work->finish() : report_failure(communicator, communicator.handle);
  pending.work.reset();
  if (pending.persistent != nullptr) {
    end_receive(*pending.persistent, error);
    return;
  }
  pending.answer->error = error;
  PMPI_Grequest_complete(pending.request);
}

// Takes out the first for which `chosen` is true and that is complete. -1: none is chosen; 0: what is chosen runs.
template <typename Chosen>
int settle_one(Chosen chosen) {
  Pending found;
  tuttiResult_t result = tuttiInProgress;
  {
    const std::lock_guard lock(table().mutex);
    bool runs = false;
    for (std::size_t at = 0; at < table().pending.size(); ++at) {
      Pending& pending = table().pending[at];
      if (!chosen(pending)) continue;
      result = tuttiEventQuery(pending.event);
      runs = true;
      if (result == tuttiInProgress) continue;
      found = std::move(pending);
      table().pending[at] = std::move(table().pending.back());
      table().pending.pop_back();
      live_requests.fetch_sub(1, std::memory_order_release);
      break;
    }
    if (!found.work) return runs ? 0 : -1;
  }
  settle(std::move(found), result);
  return 1;
}

void add(Pending pending, std::unique_ptr<Work> work) {
  tuttiEventCreate(&pending.event);
  tuttiEventRecord(pending.event, work->stream());
  pending.work = std::move(work);
  const std::lock_guard lock(table().mutex);
  table().pending.push_back(std::move(pending));
  live_requests.fetch_add(1, std::memory_order_release);
}

#if defined(MPICH)
// The MPI library asks while a call waits that does not come through the binding, as Fortran's of mpi_f08 do not.
// It does so in place of its own waiting: so these two have to make the progress that the peers may wait for.
int on_poll(void* state, MPI_Status* /*status*/) {
  if (settle_one([state](const Pending& pending) { return pending.answer == state; }) == 0) progress_once();
  return MPI_SUCCESS;
}

int on_wait(int count, void** states, double /*seconds*/, MPI_Status* /*status*/) {
  for (int at = 0; at < count; ++at) {
    while (settle_one([&](const Pending& pending) { return pending.answer == states[at]; }) == 0) {
      progress_once();
      sched_yield();
    }
  }
  return MPI_SUCCESS;
}

int start_generalized(Answer* answer, MPI_Request* request) {
  return PMPIX_Grequest_start(on_query, on_free, on_cancel, on_poll, on_wait, answer, request);
}
#else
int start_generalized(Answer* answer, MPI_Request* request) {
  return PMPI_Grequest_start(on_query, on_free, on_cancel, answer, request);
}
#endif

}  // namespace

int make_request(std::unique_ptr<Work> work, MPI_Request* request) {
  Pending pending;
  pending.answer = new Answer;
  const int error = start_generalized(pending.answer, request);
  if (error != MPI_SUCCESS) {
    delete pending.answer;
    tuttiStreamSynchronize(work->stream());
    return error;
  }
  pending.request = *request;
  add(std::move(pending), std::move(work));
  return MPI_SUCCESS;
}

void add_pending(std::unique_ptr<Work> work, MPI_Request request, const Persistent& persistent) {
  Pending pending;
  pending.request = request;
  pending.persistent = &persistent;
  add(std::move(pending), std::move(work));
}

bool still_runs(MPI_Request request) {
  if (request == MPI_REQUEST_NULL) return false;
  return settle_one([request](const Pending& pending) { return pending.request == request; }) == 0;
}

void complete_request(MPI_Request request) {
  while (still_runs(request)) {
    progress_once();
    sched_yield();
  }
}

void finish_requests_of(const Communicator& communicator) {
  if (!any_requests()) return;
  while (settle_one([&](const Pending& pending) { return &pending.work->communicator() == &communicator; }) >= 0) {
    progress_once();  // a peer may come to it only when it has got what this rank has sent before
    sched_yield();
  }
}

}  // namespace tutti::mpi
