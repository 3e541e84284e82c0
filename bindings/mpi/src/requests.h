// Requests of nonblocking collectives that tutti serves: generalized requests of the MPI library, which the calls that
// wait and test complete when tutti has finished. Other requests are none of the binding's business.
#ifndef TUTTI_BINDINGS_MPI_REQUESTS_H_
#define TUTTI_BINDINGS_MPI_REQUESTS_H_

#include <atomic>
#include <memory>

#include "interface.h"
#include "work.h"

namespace tutti::mpi {

// How many there are: while 0, every call goes to the MPI library after one load.
extern std::atomic<int> live_requests;
inline bool any_requests() {
  return live_requests.load(std::memory_order_acquire) != 0;
}

// Makes the request of a call whose operation has been queued. An MPI error code.
int make_request(std::unique_ptr<Work> work, MPI_Request* request);
// The same of a persistent one that has been started.
struct Persistent;
void add_pending(std::unique_ptr<Work> work, MPI_Request request, const Persistent& persistent);
// Completes the request if it is the binding's and tutti has finished it. True if it still runs.
bool still_runs(MPI_Request request);
// Waits, and lets the MPI library make progress, until it does not.
void complete_request(MPI_Request request);
void finish_requests_of(const Communicator& communicator);

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_REQUESTS_H_
