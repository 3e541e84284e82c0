// Requests of nonblocking collectives that tutti serves: generalized requests of the MPI library, which the calls that
// wait and test complete when tutti has finished. The binding does not touch other requests.
#ifndef TUTTI_BINDINGS_MPI_REQUESTS_H_
#define TUTTI_BINDINGS_MPI_REQUESTS_H_

#include <atomic>
#include <list>
#include <memory>

#include "interface.h"
#include "work.h"

namespace tutti::mpi {

// How many there are, with those that have failed until a call says so: while 0, every call goes to the MPI library
// after one load.
extern std::atomic<int> live_requests;
inline bool any_requests() {
  return live_requests.load(std::memory_order_acquire) != 0;
}

// Makes the request of a call whose operation has been queued. An MPI error code.
int make_request(std::unique_ptr<Work> work, Function function, MPI_Request* request);
// The same of a persistent one that has been started.
struct Persistent;
void add_pending(std::unique_ptr<Work> work, MPI_Request request, const Persistent& persistent);
// Completes the request if it is the binding's and tutti has finished it. True if it still runs.
bool still_runs(MPI_Request request);
// Waits, and lets the MPI library make progress, until it does not.
void complete_request(MPI_Request request);
// Before the program's handle of the communicator goes: whether operations of its requests run.
bool runs_request_of(const Communicator& communicator);
// Makes each pending request hold the communicator until the request has ended. Waits until no other thread is ending a
// request of the communicator.
void hold_for_requests_of(Communicator& communicator);
// Releases the communicators that ended requests have held. Called when the program makes or frees a communicator,
// because it may wait for peers.
void let_go_of_left();
void let_go_later(Communicator& communicator);
// Call it before the communicator is freed, in any thread. Afterwards all operations of its requests have ended, and
// the failed ones have called the error handler. The thread that waits for a request completes it, and gets its error.
void finish_requests_of(const Communicator& communicator);
// At the end of MPI the same, and completes those that the above has not ended before.
void end_requests_of(const Communicator& communicator);
// Before a request is freed or started that may have failed.
void forget_failure(MPI_Request request);

// A caller's, in C or in Fortran.
class Requests {
 public:
  static Requests in_c(const MPI_Request* requests) { return {requests, nullptr}; }
  static Requests in_fortran(const MPI_Fint* requests) { return {nullptr, requests}; }
  MPI_Request operator[](int at) const { return c_ != nullptr ? c_[at] : PMPI_Request_f2c(fortran_[at]); }

 private:
  Requests(const MPI_Request* c, const MPI_Fint* fortran) : c_(c), fortran_(fortran) {}

  const MPI_Request* c_;
  const MPI_Fint* fortran_;
};

struct Pending;

// Errors of the binding's requests, for the call that completes them. The communicator's error handler has been called;
// the MPI library, which would call that of MPI_COMM_WORLD, does not know of them.
class Failures {
 public:
  // Before the MPI library's own function completes some of these.
  Failures(int count, Requests requests);
  ~Failures();
  Failures(const Failures&) = delete;
  Failures& operator=(const Failures&) = delete;
  [[nodiscard]] bool none() const { return taken_.empty(); }
  // After it: what the call returns that has completed the request at `at`, where the function has returned `error`.
  int of_one(int error, int at);
  // `count` of them, those at indices[] - first, or, with NULL, all. statuses: an array of MPI_Status, of whatever
  // alignment, or NULL.
  int of_several(int error, int count, const int* indices, int first, void* statuses);

 private:
  int take(int at);

  Requests requests_;
  bool looks_ = false;  // some of them run
  std::list<Pending> taken_;
};

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_REQUESTS_H_
