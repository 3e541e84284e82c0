// What every entry point does: find the communicator, do the body or pass the call on, count it.
#ifndef TUTTI_BINDINGS_MPI_SERVE_H_
#define TUTTI_BINDINGS_MPI_SERVE_H_

#include "collectives.h"
#include "persistent.h"
#include "requests.h"

namespace tutti::mpi {

// body(Work &) is an Outcome, pass() the MPI library's own function.
template <typename Body, typename Pass>
int serve(Function function, MPI_Comm comm, Body body, Pass pass) {
  const Timer timer;
  Communicator* communicator = find_communicator(comm, true);
  Reason reason = communicator->reason;
  if (reason == Reason::kNone) [[likely]] {
    Work work(*communicator, Mode::kBlocking);
    const Outcome outcome = body(work);
    reason = outcome.reason;
    if (reason == Reason::kNone) [[likely]] {
      const int error =
          outcome.result == tuttiSuccess ? work.finish() : report_failure(*communicator, communicator->handle);
      count_call(function, false, reason, timer);
      return error;
    }
  }
  const int error = pass();
  count_call(function, false, reason, timer);
  return error;
}

template <typename Body, typename Pass>
int start(Function function, MPI_Comm comm, MPI_Request* request, Body body, Pass pass) {
  const Timer timer;
  Communicator* communicator = find_communicator(comm, false);
  Reason reason = request == nullptr ? Reason::kArgument : communicator->reason;
  if (reason == Reason::kNone) {
    auto work = std::make_unique<Work>(*communicator, Mode::kQueued);
    const Outcome outcome = body(*work);
    reason = outcome.reason;
    if (reason == Reason::kNone) {
      const int error = outcome.result == tuttiSuccess ? make_request(std::move(work), request)
                                                       : report_failure(*communicator, communicator->handle);
      count_call(function, true, reason, timer);
      return error;
    }
  }
  const int error = pass();
  count_call(function, true, reason, timer);
  return error;
}

// Makes a persistent request. keep(Kept &) is the body again, with arguments of its own; each start counts as a
// nonblocking call.
template <typename Body, typename Keep, typename Pass>
int prepare(Function function, MPI_Comm comm, MPI_Request* request, Body body, Keep keep, Pass pass) {
  const Timer timer;
  // The ranks may wait for each other in it, as in a blocking call.
  Communicator* communicator = find_communicator(comm, true);
  Reason reason = request == nullptr ? Reason::kArgument : communicator->reason;
  if (reason == Reason::kNone) {
    Work work(*communicator, Mode::kChecked);
    reason = body(work).reason;
  }
  if (reason == Reason::kNone) {
    auto persistent = std::make_unique<Persistent>(function, *communicator);
    persistent->body = keep(persistent->kept);
    return make_persistent(std::move(persistent), request);
  }
  const int error = pass();
  count_call(function, true, reason, timer);
  return error;
}

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_SERVE_H_
