#include "requests.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <utility>

#include "persistent.h"
#include "progress.h"

namespace tutti::mpi {

std::atomic<int> live_requests{0};

// What the MPI library knows a request by, until it frees it.
struct Answer {};

struct Pending {
  MPI_Request request = MPI_REQUEST_NULL;
  std::unique_ptr<Work> work;
  tuttiEvent_t event = nullptr;
  Answer* answer = nullptr;
  const Persistent* persistent = nullptr;  // in place of an answer
  int error = MPI_SUCCESS;                 // of one that has failed
  int at = 0;                              // of one that a call may complete: among its requests
};

namespace {

// Requests move from list to list, for which no memory is needed.
struct Table {
  std::mutex mutex;
  std::list<Pending> pending;
  std::list<Pending> failed;  // to the MPI library they are complete
};
Table& table() {
  static auto* const kTable = new Table;
  return *kTable;
}

// Nor does MPI hear of errors here: it would call the error handler of MPI_COMM_WORLD, which is not the communicator's.
int on_query(void* /*state*/, MPI_Status* status) {
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return MPI_SUCCESS;
}

template <typename Chosen>
void drop_failed(Chosen chosen) {
  const std::lock_guard lock(table().mutex);
  live_requests.fetch_sub(static_cast<int>(table().failed.remove_if(chosen)), std::memory_order_release);
}

int on_free(void* state) {
  drop_failed([state](const Pending& failed) { return failed.answer == state; });
  delete static_cast<Answer*>(state);
  return MPI_SUCCESS;
}

// Collectives cannot be cancelled.
int on_cancel(void* /*state*/, int /*complete*/) {
  return MPI_SUCCESS;
}

// Without the lock: MPI may call the program's error handler.
void settle(std::list<Pending> found, tuttiResult_t result) {
  Pending& pending = found.front();
  tuttiEventDestroy(pending.event);
  pending.work->ended();
  if (result != tuttiSuccess) pending.work->failed();
  const Communicator& communicator = pending.work->communicator();
  pending.error = result == tuttiSuccess ? pending.work->finish() : report_failure(communicator, communicator.handle);
  pending.work.reset();
  MPI_Request request = pending.request;
  const Persistent* persistent = pending.persistent;
  if (pending.error == MPI_SUCCESS) {
    live_requests.fetch_sub(1, std::memory_order_release);
  } else {
    const std::lock_guard lock(table().mutex);
    table().failed.splice(table().failed.end(), found);
  }
  if (persistent != nullptr) {
    end_receive(*persistent);
  } else {
    PMPI_Grequest_complete(request);
  }
}

// Takes out the first for which `chosen` is true and that is complete. -1: none is chosen; 0: what is chosen runs.
template <typename Chosen>
int settle_one(Chosen chosen) {
  std::list<Pending> found;
  tuttiResult_t result = tuttiInProgress;
  {
    const std::lock_guard lock(table().mutex);
    bool runs = false;
    std::list<Pending>& all = table().pending;
    for (auto pending = all.begin(); pending != all.end(); ++pending) {
      if (!chosen(*pending)) continue;
      result = tuttiEventQuery(pending->event);
      runs = true;
      if (result == tuttiInProgress) continue;
      found.splice(found.begin(), all, pending);
      break;
    }
    if (found.empty()) return runs ? 0 : -1;
  }
  settle(std::move(found), result);
  return 1;
}

// REQUIRES: there is one.
void add(std::list<Pending> one, std::unique_ptr<Work> work) {
  Pending& pending = one.front();
  pending.work = std::move(work);
  tuttiEventCreate(&pending.event);
  tuttiEventRecord(pending.event, pending.work->stream());
  const std::lock_guard lock(table().mutex);
  table().pending.splice(table().pending.end(), one);
  live_requests.fetch_add(1, std::memory_order_release);
}

// Whether this thread is in one of the binding's calls, with a Failures.
thread_local bool completing __attribute__((tls_model("initial-exec"))) = false;

#if defined(MPICH)
// The MPI library asks while a call waits that does not come through the binding, as Fortran's of mpi_f08 do not.
// It does so in place of its own waiting: so these two have to make the progress that the peers may wait for.
int on_poll(void* state, MPI_Status* /*status*/) {
  // In the binding's calls the binding has looked, and would not notice an error any more.
  if (completing || settle_one([state](const Pending& pending) { return pending.answer == state; }) == 0) {
    progress_once();
  }
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
  std::list<Pending> one(1);
  auto answer = std::make_unique<Answer>();
  const int error = start_generalized(answer.get(), request);
  if (error != MPI_SUCCESS) return error;
  one.front().request = *request;
  one.front().answer = answer.release();
  add(std::move(one), std::move(work));
  return MPI_SUCCESS;
}

void add_pending(std::unique_ptr<Work> work, MPI_Request request, const Persistent& persistent) {
  std::list<Pending> one(1);
  one.front().request = request;
  one.front().persistent = &persistent;
  add(std::move(one), std::move(work));
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

void forget_failure(MPI_Request request) {
  if (any_requests()) drop_failed([request](const Pending& failed) { return failed.request == request; });
}

Failures::Failures(int count, Requests requests) : requests_(requests) {
  completing = true;
  const std::lock_guard lock(table().mutex);
  std::list<Pending>& failed = table().failed;
  for (int at = 0; at < count && !failed.empty(); ++at) {
    const MPI_Request request = requests[at];
    const auto is_this = [&](const Pending& pending) { return pending.request == request; };
    const auto found = std::find_if(failed.begin(), failed.end(), is_this);
    if (found == failed.end()) continue;
    found->at = at;
    taken_.splice(taken_.end(), failed, found);
  }
}

Failures::~Failures() {
  completing = false;
  if (taken_.empty()) return;
  const std::lock_guard lock(table().mutex);
  // What has not been completed, as where a test finds that others still run.
  const auto gone = [this](const Pending& pending) { return requests_[pending.at] != pending.request; };
  live_requests.fetch_sub(static_cast<int>(taken_.remove_if(gone)), std::memory_order_release);
  table().failed.splice(table().failed.end(), taken_);
}

int Failures::take(int at) {
  const auto is_this = [at](const Pending& pending) { return pending.at == at; };
  const auto found = std::find_if(taken_.begin(), taken_.end(), is_this);
  if (found == taken_.end()) return MPI_SUCCESS;
  const int error = found->error;
  taken_.erase(found);
  live_requests.fetch_sub(1, std::memory_order_release);
  return error;
}

int Failures::of_one(int error, int at) {
  return error == MPI_SUCCESS ? take(at) : error;
}

int Failures::of_several(int error, int count, const int* indices, int first, void* statuses) {
  if (taken_.empty()) return error;
  int kind = MPI_SUCCESS;
  if (error != MPI_SUCCESS) PMPI_Error_class(error, &kind);
  if (kind != MPI_SUCCESS && kind != MPI_ERR_IN_STATUS) return error;
  bool failed = kind != MPI_SUCCESS;
  for (int entry = 0; entry < count; ++entry) {
    const int own = take(indices == nullptr ? entry : indices[entry] - first);
    failed = failed || own != MPI_SUCCESS;
    // Where MPI has found no error it has set none.
    if (statuses == nullptr || (own == MPI_SUCCESS && kind != MPI_SUCCESS)) continue;
    auto* status = static_cast<std::byte*>(statuses) + static_cast<std::size_t>(entry) * sizeof(MPI_Status);
    std::memcpy(status + offsetof(MPI_Status, MPI_ERROR), &own, sizeof own);
  }
  return failed ? MPI_ERR_IN_STATUS : MPI_SUCCESS;
}

}  // namespace tutti::mpi
