#include "requests.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "persistent.h"
#include "progress.h"

namespace tutti::mpi {

std::atomic<int> live_requests{0};

// The extra state that the MPI library passes for a request, until it frees the request.
struct Answer {};

struct Pending {
  MPI_Request request = MPI_REQUEST_NULL;
  std::unique_ptr<Work> work;
  tuttiEvent_t event = nullptr;
  Answer* answer = nullptr;
  const Persistent* persistent = nullptr;  // in place of an answer
  Function function = Function::kFunctions;
  Communicator* communicator = nullptr;
  bool holds = false;                                                // the communicator
  enum class State { kRuns, kEnding, kEnded } state = State::kRuns;  // of the operation, with what is left to do then
  std::thread::id ender;                                             // which thread does that, for kEnding
  tuttiResult_t known = tuttiInProgress;                             // of one without an event
  int error = MPI_SUCCESS;                                           // of one that has failed
  int at = 0;  // of one that a call may complete: among its requests
};

namespace {

// Requests move from list to list, for which no memory is needed.
struct Table {
  std::mutex mutex;
  std::list<Pending> pending;
  std::list<Pending> failed;  // to the MPI library they are complete, or will be at once
  // Communicators that requests have held until they ended. Not let go at once: that may wait for peers, and what has
  // ended a request may be a call of the MPI library's.
  std::vector<Communicator*> left;
  // How many calls of the binding's have a Failures for requests that still run: they would not notice an error of
  // those any more.
  int looked_at = 0;
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

// Without the lock: MPI may call the program's error handler. The state is kEnding, so no other thread touches it.
void end(Pending& pending, tuttiResult_t result) {
  tuttiEventDestroy(pending.event);
  pending.work->ended();
  if (result != tuttiSuccess) pending.work->failed();
  const Form form = pending.persistent != nullptr ? Form::kPersistent : Form::kNonblocking;
  pending.error = result == tuttiSuccess
                      ? pending.work->finish()
                      : report_failure(*pending.communicator, pending.function, form, pending.work->comm(), result);
  if (pending.error != MPI_SUCCESS) count_failed(pending.function, true);
  pending.work.reset();
}

enum class Looked {
  kNone,  // nothing is chosen
  kRuns,  // what is chosen runs, or another thread ends it
  kDone,  // one was ended, if it had to be
};

enum class Completing {
  kNever,       // those that have ended are not chosen
  kAlways,      // by the call that is to find errors, before it looks for them
  kIfUnlooked,  // by any other: not while a call has looked, which would not notice an error
};

// The first for which `chosen` is true and that is to be ended or completed. The mutex is held.
template <typename Chosen>
std::list<Pending>::iterator first_of(Chosen chosen, Completing completing, Looked& looked, tuttiResult_t& result) {
  using State = Pending::State;
  std::list<Pending>& all = table().pending;
  for (auto pending = all.begin(); pending != all.end(); ++pending) {
    if (!chosen(*pending) || (pending->state == State::kEnded && completing == Completing::kNever)) continue;
    // In this thread only an error handler comes here, which must not wait for its own end.
    if (pending->state == State::kEnding && pending->ender == std::this_thread::get_id()) continue;
    looked = Looked::kRuns;
    if (pending->state == State::kEnding) continue;
    if (pending->state == State::kEnded) return pending;
    result = pending->known != tuttiInProgress ? pending->known : tuttiEventQuery(pending->event);
    if (result != tuttiInProgress) return pending;
  }
  return all.end();
}

// Ends that one's operation, and completes its request if that is asked for.
template <typename Chosen>
Looked look_for(Chosen chosen, Completing completing) {
  Table& all = table();
  Looked looked = Looked::kNone;
  tuttiResult_t result = tuttiInProgress;
  const auto may_complete = [&] {
    return completing == Completing::kAlways || (completing == Completing::kIfUnlooked && all.looked_at == 0);
  };
  std::unique_lock lock(all.mutex);
  if (completing == Completing::kIfUnlooked && !may_complete()) return Looked::kRuns;
  const auto found = first_of(chosen, completing, looked, result);
  if (found == all.pending.end()) return looked;
  if (found->state == Pending::State::kRuns) {
    found->state = Pending::State::kEnding;
    found->ender = std::this_thread::get_id();
    lock.unlock();
    end(*found, result);
    lock.lock();
    if (found->holds) all.left.push_back(found->communicator);
    found->communicator = nullptr;  // it may be gone soon
    found->state = Pending::State::kEnded;
  }
  // It is where it was: only who ends it, or completes it after that, takes it out.
  if (!may_complete()) return Looked::kDone;
  const MPI_Request request = found->request;
  const Persistent* const persistent = found->persistent;
  // The error must be stored before the request stops being pending.
  if (found->error != MPI_SUCCESS) {
    all.failed.splice(all.failed.end(), all.pending, found);
  } else {
    all.pending.erase(found);
    live_requests.fetch_sub(1, std::memory_order_release);
  }
  lock.unlock();
  if (persistent != nullptr) {
    end_receive(*persistent);
  } else {
    PMPI_Grequest_complete(request);
  }
  return Looked::kDone;
}

template <typename Chosen>
void wait_for_all(Chosen chosen, Completing completing) {
  while (look_for(chosen, completing) != Looked::kNone) {
    progress_once();  // a peer may come to it only when it has got what this rank has sent before
    sched_yield();
  }
}

// REQUIRES: there is one.
void add(std::list<Pending> one, std::unique_ptr<Work> work) {
  Pending& pending = one.front();
  pending.work = std::move(work);
  pending.communicator = &pending.work->communicator();
  const tuttiStream_t stream = pending.work->stream();
  if (tuttiEventCreate(&pending.event) != tuttiSuccess || tuttiEventRecord(pending.event, stream) != tuttiSuccess) {
    const Inside inside;
    pending.known = tuttiStreamSynchronize(stream);
  }
  const std::lock_guard lock(table().mutex);
  table().pending.splice(table().pending.end(), one);
  live_requests.fetch_add(1, std::memory_order_release);
}

#if defined(MPICH)
// The MPI library asks while a call waits that does not come through the binding, as Fortran's of mpi_f08 do not.
// It does so in place of its own waiting: so these two have to make the progress that the peers may wait for.
int on_poll(void* state, MPI_Status* /*status*/) {
  const auto is_this = [state](const Pending& pending) { return pending.answer == state; };
  if (look_for(is_this, Completing::kIfUnlooked) == Looked::kRuns) progress_once();
  return MPI_SUCCESS;
}

int on_wait(int count, void** states, double /*seconds*/, MPI_Status* /*status*/) {
  for (int at = 0; at < count; ++at) {
    const auto is_this = [&](const Pending& pending) { return pending.answer == states[at]; };
    while (look_for(is_this, Completing::kIfUnlooked) == Looked::kRuns) {
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
  if (!any_requests() || is_helper() || makes_own_self()) return 0;
  return look_for([](const Pending& /*any*/) { return true; }, Completing::kIfUnlooked) == Looked::kDone ? 1 : 0;
}

// As opal/runtime/opal_progress.h has it.
void register_for_progress() {
  using Register = int (*)(int (*)());
  if (void* found = find_in_mpi_library("opal_progress_register")) reinterpret_cast<Register>(found)(on_progress);
}

void hear_of_progress() {
  static std::once_flag once;
  std::call_once(once, register_for_progress);
}

int start_generalized(Answer* answer, MPI_Request* request) {
  hear_of_progress();
  return PMPI_Grequest_start(on_query, on_free, on_cancel, answer, request);
}
#endif

}  // namespace

int make_request(std::unique_ptr<Work> work, Function function, MPI_Request* request) {
  std::list<Pending> one(1);
  auto answer = std::make_unique<Answer>();
  const int error = start_generalized(answer.get(), request);
  if (error != MPI_SUCCESS) return error;
  one.front().request = *request;
  one.front().answer = answer.release();
  one.front().function = function;
  add(std::move(one), std::move(work));
  return MPI_SUCCESS;
}

void add_pending(std::unique_ptr<Work> work, MPI_Request request, const Persistent& persistent) {
#if !defined(MPICH)
  hear_of_progress();
#endif
  std::list<Pending> one(1);
  one.front().request = request;
  one.front().persistent = &persistent;
  one.front().function = persistent.function;
  add(std::move(one), std::move(work));
}

bool still_runs(MPI_Request request) {
  if (request == MPI_REQUEST_NULL) return false;
  const auto is_this = [request](const Pending& pending) { return pending.request == request; };
  return look_for(is_this, Completing::kAlways) == Looked::kRuns;
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
  table().left.reserve(table().left.size() + all.size());
  for (Pending& pending : all) {
    if (pending.communicator != &communicator || pending.holds) continue;
    hold(communicator);
    pending.holds = true;
  }
}

void let_go_later(Communicator& communicator) {
  const std::lock_guard lock(table().mutex);
  table().left.push_back(&communicator);
}

void let_go_of_left() {
  std::vector<Communicator*> left;
  {
    const std::lock_guard lock(table().mutex);
    left.swap(table().left);
    table().left.reserve(table().pending.size() + 1);
  }
  for (Communicator* communicator : left) let_go(*communicator);
}

void finish_requests_of(const Communicator& communicator) {
  if (!any_requests()) return;
  wait_for_all([&](const Pending& pending) { return pending.communicator == &communicator; }, Completing::kNever);
}

void end_requests_of(const Communicator& communicator) {
  if (!any_requests()) return;
  wait_for_all([&](const Pending& pending) { return pending.communicator == &communicator; }, Completing::kAlways);
}

void forget_failure(MPI_Request request) {
  if (any_requests()) drop_failed([request](const Pending& failed) { return failed.request == request; });
}

Failures::Failures(int count, Requests requests) : requests_(requests) {
  const std::lock_guard lock(table().mutex);
  for (const Pending& pending : table().pending) {
    for (int at = 0; at < count && !looks_; ++at) looks_ = requests[at] == pending.request;
  }
  if (looks_) ++table().looked_at;
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
  if (!looks_ && taken_.empty()) return;
  const std::lock_guard lock(table().mutex);
  if (looks_) --table().looked_at;
  // Skips requests that are not complete, for example if a test finds that others still run.
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
    // MPI sets no error field if it has found no error.
    if (statuses == nullptr || (own == MPI_SUCCESS && kind != MPI_SUCCESS)) continue;
    auto* status = static_cast<std::byte*>(statuses) + static_cast<std::size_t>(entry) * sizeof(MPI_Status);
    std::memcpy(status + offsetof(MPI_Status, MPI_ERROR), &own, sizeof own);
  }
  return failed ? MPI_ERR_IN_STATUS : MPI_SUCCESS;
}

}  // namespace tutti::mpi
