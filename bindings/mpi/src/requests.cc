#include "requests.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <thread>
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
  Communicator* communicator = nullptr;
  bool holds = false;                                                // the communicator
  enum class State { kRuns, kEnding, kEnded } state = State::kRuns;  // of the operation, with what is left to do then
  std::thread::id ender;                                             // which thread does that, for kEnding
  int error = MPI_SUCCESS;                                           // of one that has failed
  int at = 0;  // of one that a call may complete: among its requests
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

// Without the lock: MPI may call the program's error handler. The state is kEnding, so that nobody else touches it.
void end(Pending& pending, tuttiResult_t result) {
  tuttiEventDestroy(pending.event);
  pending.work->ended();
  if (result != tuttiSuccess) pending.work->failed();
  const Communicator& communicator = *pending.communicator;
  pending.error = result == tuttiSuccess ? pending.work->finish() : report_failure(communicator, communicator.handle);
  pending.work.reset();
}

// For the MPI library. Of one that has ended; by the thread that tests it or waits for it, and only by that: another
// one's completion might come between a look for errors and the MPI library's own function.
void complete(std::list<Pending> found) {
  Pending& pending = found.front();
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

enum class Looked {
  kNone,  // nothing is chosen
  kRuns,  // what is chosen runs, or another thread ends it
  kDone,  // one was ended, if it had to be
};

// Ends the first for which `chosen` is true and whose operation is complete, and completes its request if that is asked
// for; else those that have ended are not chosen.
template <typename Chosen>
Looked look_for(Chosen chosen, bool completes) {
  using State = Pending::State;
  std::list<Pending> found;
  std::list<Pending>& all = table().pending;
  Pending* ending = nullptr;
  Communicator* held = nullptr;
  tuttiResult_t result = tuttiInProgress;
  std::unique_lock lock(table().mutex);
  Looked looked = Looked::kNone;
  auto pending = all.begin();
  for (; pending != all.end() && ending == nullptr; ++pending) {
    if (!chosen(*pending) || (pending->state == State::kEnded && !completes)) continue;
    // In this thread only an error handler comes here, which must not wait for its own end.
    if (pending->state == State::kEnding && pending->ender == std::this_thread::get_id()) continue;
    looked = Looked::kRuns;
    if (pending->state == State::kEnding) continue;
    if (pending->state == State::kRuns) result = tuttiEventQuery(pending->event);
    if (pending->state == State::kEnded || result != tuttiInProgress) ending = &*pending;
  }
  if (ending == nullptr) return looked;
  --pending;
  if (ending->state == State::kRuns) {
    ending->state = State::kEnding;
    ending->ender = std::this_thread::get_id();
    lock.unlock();
    end(*ending, result);
    lock.lock();
    held = std::exchange(ending->holds, false) ? ending->communicator : nullptr;
    ending->communicator = nullptr;  // it may be gone soon
    ending->state = State::kEnded;
  }
  // It is where it was: only who ends it, or completes it after that, takes it out.
  if (completes) found.splice(found.begin(), all, pending);
  lock.unlock();
  if (completes) complete(std::move(found));
  if (held != nullptr) let_go(*held);
  return Looked::kDone;
}

template <typename Chosen>
Looked settle_one(Chosen chosen) {
  return look_for(chosen, true);
}

template <typename Chosen>
void wait_for_all(Chosen chosen, bool completes) {
  while (look_for(chosen, completes) != Looked::kNone) {
    progress_once();  // a peer may come to it only when it has got what this rank has sent before
    sched_yield();
  }
}

// REQUIRES: there is one.
void add(std::list<Pending> one, std::unique_ptr<Work> work) {
  Pending& pending = one.front();
  pending.work = std::move(work);
  pending.communicator = &pending.work->communicator();
  tuttiEventCreate(&pending.event);
  tuttiEventRecord(pending.event, pending.work->stream());
  const std::lock_guard lock(table().mutex);
  table().pending.splice(table().pending.end(), one);
  live_requests.fetch_add(1, std::memory_order_release);
}

// How many calls of the binding's have a Failures for requests that still run: they would not notice an error of those
// any more.
std::atomic<int> looked_at{0};

#if defined(MPICH)
// The MPI library asks while a call waits that does not come through the binding, as Fortran's of mpi_f08 do not.
// It does so in place of its own waiting: so these two have to make the progress that the peers may wait for.
int on_poll(void* state, MPI_Status* /*status*/) {
  if (looked_at.load() > 0 ||
      settle_one([state](const Pending& pending) { return pending.answer == state; }) == Looked::kRuns) {
    progress_once();
  }
  return MPI_SUCCESS;
}

int on_wait(int count, void** states, double /*seconds*/, MPI_Status* /*status*/) {
  for (int at = 0; at < count; ++at) {
    while (settle_one([&](const Pending& pending) { return pending.answer == states[at]; }) == Looked::kRuns) {
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
// Open MPI calls it whenever it makes progress: so calls that do not come through the binding, as those that an
// MPI_Wait of the program's makes to PMPI_Wait, complete the binding's requests as well.
int on_progress() {
  if (!any_requests() || is_helper() || looked_at.load() > 0) return 0;
  return settle_one([](const Pending& /*any*/) { return true; }) == Looked::kDone ? 1 : 0;
}

// As opal/runtime/opal_progress.h has it.
void hear_of_progress() {
  using Register = int (*)(int (*)());
  if (void* found = mpi_variable("opal_progress_register")) reinterpret_cast<Register>(found)(on_progress);
}

int start_generalized(Answer* answer, MPI_Request* request) {
  static std::once_flag once;
  std::call_once(once, hear_of_progress);
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
  return settle_one([request](const Pending& pending) { return pending.request == request; }) == Looked::kRuns;
}

void complete_request(MPI_Request request) {
  while (still_runs(request)) {
    progress_once();
    sched_yield();
  }
}

bool runs_request_of(const Communicator& communicator) {
  if (!any_requests()) return false;
  const std::lock_guard lock(table().mutex);
  const auto runs = [&](const Pending& pending) { return pending.communicator == &communicator; };
  return std::any_of(table().pending.begin(), table().pending.end(), runs);
}

void hold_for_requests_of(Communicator& communicator) {
  const auto ends_elsewhere = [&](const Pending& pending) {
    return pending.communicator == &communicator && pending.state == Pending::State::kEnding &&
           pending.ender != std::this_thread::get_id();
  };
  std::list<Pending>& all = table().pending;
  std::unique_lock lock(table().mutex);
  while (std::any_of(all.begin(), all.end(), ends_elsewhere)) {
    lock.unlock();
    sched_yield();
    lock.lock();
  }
  for (Pending& pending : all) {
    if (pending.communicator != &communicator || pending.holds) continue;
    hold(communicator);
    pending.holds = true;
  }
}

void finish_requests_of(const Communicator& communicator) {
  if (!any_requests()) return;
  wait_for_all([&](const Pending& pending) { return pending.communicator == &communicator; }, false);
}

void end_requests_of(const Communicator& communicator) {
  if (!any_requests()) return;
  wait_for_all([&](const Pending& pending) { return pending.communicator == &communicator; }, true);
}

void forget_failure(MPI_Request request) {
  if (any_requests()) drop_failed([request](const Pending& failed) { return failed.request == request; });
}

Failures::Failures(int count, Requests requests) : requests_(requests) {
  const std::lock_guard lock(table().mutex);
  for (const Pending& pending : table().pending) {
    for (int at = 0; at < count && !looks_; ++at) looks_ = requests[at] == pending.request;
  }
  if (looks_) looked_at.fetch_add(1);
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
  if (looks_) looked_at.fetch_sub(1);
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
