// The steps of every entry point: find the communicator, run the body or pass the call on, count it.
#ifndef TUTTI_BINDINGS_MPI_SERVE_H_
#define TUTTI_BINDINGS_MPI_SERVE_H_

#include "collectives.h"
#include "exceptions.h"
#include "persistent.h"
#include "recovery.h"
#include "requests.h"

namespace tutti::mpi {

// Whether the binding finds what MPI libraries refuse, on this rank.
template <typename Body>
bool is_refused(Communicator& communicator, Body body) {
  Work work(communicator, Mode::kChecked);
  const Reason reason = body(work).reason;
  return reason == Reason::kArgument || reason == Reason::kOperator;
}

// Why the MPI library serves the call, if it does. A call that makes tutti's communicator waits for other ranks: one
// that is refused must not come to that. error: as of make_tutti(); the call then ends with it.
template <typename Body>
Reason find_reason(Communicator& communicator, Making making, Body body, Timer& timer, int& error) {
  if (communicator.reason != Reason::kFew) [[likely]]
    return communicator.reason;
  const Reason not_yet = why_not_yet(communicator, making);
  if (not_yet != Reason::kNone) return not_yet;
  if (is_refused(communicator, body)) return Reason::kArgument;
  error = make_tutti(communicator);
  timer.restart();
  return communicator.reason;
}

// The MPI library's own function, for a call that tutti does not serve.
template <typename Body, typename Pass>
int pass_on(Communicator& communicator, Body body, Pass pass) {
  if (communicator.reason != Reason::kFew) return pass();
  const int error = pass();
  if (error != MPI_SUCCESS && is_recoverable(error)) return error;
  if (error == MPI_SUCCESS || !(is_refusal(error) || is_refused(communicator, body))) count_taken(communicator);
  return error;
}

// body(Work &) is an Outcome, pass() the MPI library's own function.
template <typename Body, typename Pass>
int serve(Function function, MPI_Comm comm, Body body, Pass pass) {
  Timer timer;
  Communicator* communicator = nullptr;
  Outcome outcome = tuttiSuccess;
  int error = MPI_SUCCESS;
  const int thrown = caught([&] {
    communicator = find_communicator(comm);
    outcome.reason = find_reason(*communicator, Making::kWhenDue, body, timer, error);
    if (outcome.reason != Reason::kNone) [[unlikely]]
      return;
    Work work(*communicator, Mode::kBlocking);
    outcome = body(work);
    if (outcome.reason == Reason::kNone && outcome.result == tuttiSuccess) [[likely]]
      error = work.finish();
  });
  if (thrown != MPI_SUCCESS) [[unlikely]] {
    error = raise_error(comm, thrown);
  } else if (outcome.reason != Reason::kNone) {
    error = error == MPI_SUCCESS ? pass_on(*communicator, body, pass) : raise_error(comm, error);
  } else if (outcome.result != tuttiSuccess) {
    error = report_failure(*communicator, function, Form::kBlocking, communicator->comm, outcome.result);
  }
  if (error != MPI_SUCCESS && outcome.reason == Reason::kNone) [[unlikely]]
    count_failed(function, false);
  count_call(function, false, outcome.reason, timer);
  return error;
}

template <typename Body, typename Pass>
int start(Function function, MPI_Comm comm, MPI_Request* request, Body body, Pass pass) {
  Timer timer;
  Communicator* communicator = nullptr;
  Outcome outcome = tuttiSuccess;
  int error = MPI_SUCCESS;
  const int thrown = caught([&] {
    communicator = find_communicator(comm);
    outcome.reason =
        request == nullptr ? Reason::kArgument : find_reason(*communicator, Making::kNever, body, timer, error);
    if (outcome.reason != Reason::kNone) return;
    auto work = std::make_unique<Work>(*communicator, Mode::kQueued);
    outcome = body(*work);
    if (outcome.reason == Reason::kNone && outcome.result == tuttiSuccess) {
      error = make_request(std::move(work), function, request);
    }
  });
  if (thrown != MPI_SUCCESS) {
    error = raise_error(comm, thrown);
  } else if (outcome.reason != Reason::kNone) {
    error = pass_on(*communicator, body, pass);
  } else if (outcome.result != tuttiSuccess) {
    error = report_failure(*communicator, function, Form::kNonblocking, communicator->comm, outcome.result);
  }
  if (error != MPI_SUCCESS && outcome.reason == Reason::kNone) {
    *request = MPI_REQUEST_NULL;  // programs that do not look at errors wait for it
    count_failed(function, true);
  }
  count_call(function, true, outcome.reason, timer);
  return error;
}

// Makes a persistent request. keep(Kept &) is the body again, with arguments of its own; each start counts as a
// nonblocking call.
template <typename Body, typename Keep, typename Pass>
int prepare(Function function, MPI_Comm comm, MPI_Request* request, Body body, Keep keep, Pass pass) {
  Timer timer;
  Communicator* communicator = nullptr;
  Reason reason = Reason::kNone;
  int error = MPI_SUCCESS;
  const int thrown = caught([&] {
    // The ranks may wait for each other in it, as in a blocking call.
    communicator = find_communicator(comm);
    reason = request == nullptr ? Reason::kArgument : find_reason(*communicator, Making::kNow, body, timer, error);
    if (reason == Reason::kNone) {
      Work work(*communicator, Mode::kChecked);
      reason = body(work).reason;
    }
    // Ranks whose lengths differ by mistake decide alike as well.
    if (reason != Reason::kNone && reason != Reason::kShort) return;
    const Given given = take_lane_beside(*communicator, reason);
    reason = given.reason;
    error = given.error;
    if (reason != Reason::kNone) return;
    timer.restart();
    auto persistent = std::make_unique<Persistent>(function, *communicator, *given.lane);
    persistent->body = keep(persistent->kept);
    error = make_persistent(std::move(persistent), request);
  });
  if (thrown != MPI_SUCCESS) return raise_error(comm, thrown);
  if (reason == Reason::kNone) return error;
  error = error == MPI_SUCCESS ? pass_on(*communicator, body, pass) : raise_error(comm, error);
  count_call(function, true, reason, timer);
  return error;
}

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_SERVE_H_
