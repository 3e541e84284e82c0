// Persistent collectives that tutti serves. Their requests are, to the MPI library, persistent receives of nothing from
// this process itself, which gets what they wait for when tutti has finished: so all calls that wait, test and free do
// what they should.
#ifndef TUTTI_BINDINGS_MPI_PERSISTENT_H_
#define TUTTI_BINDINGS_MPI_PERSISTENT_H_

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "communicators.h"
#include "interface.h"
#include "summary.h"
#include "work.h"

namespace tutti::mpi {

// The body that each start runs again.
using Body = std::function<Outcome(Work&)>;

// Arguments that live as long as a request: programs may free their datatypes before.
class Kept {
 public:
  explicit Kept(const Communicator& communicator) : rank_(communicator.rank), ranks_(communicator.ranks) {}
  ~Kept();
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  // An argument that is not significant on this rank may have any value, and is not read.
  MPI_Datatype type(MPI_Datatype type, bool significant);
  template <typename Count>
  const MPI_Datatype* types(const MPI_Datatype* types, const Count* counts, bool significant) {
    if (!significant) return types;
    auto copy = std::make_shared<std::vector<MPI_Datatype>>(types, types + ranks_);
    for (int at = 0; at < ranks_; ++at) {
      (*copy)[static_cast<std::size_t>(at)] = type(types[at], counts[at] > 0);
    }
    arrays_.push_back(copy);
    return copy->data();
  }
  template <typename Number>
  const Number* numbers(const Number* numbers, bool significant) {
    if (!significant) return numbers;
    auto copy = std::make_shared<std::vector<Number>>(numbers, numbers + ranks_);
    arrays_.push_back(copy);
    return copy->data();
  }

 private:
  int rank_;
  int ranks_;
  std::vector<std::shared_ptr<void>> arrays_;
  std::vector<MPI_Datatype> own_types_;
};

struct Persistent {
  // Takes over the lane.
  Persistent(Function of, Communicator& on, Lane& in);
  ~Persistent();
  Persistent(const Persistent&) = delete;
  Persistent& operator=(const Persistent&) = delete;

  Function function;
  Communicator& communicator;
  Lane& lane;
  Kept kept;
  Body body;
  MPI_Comm self = MPI_COMM_NULL;  // of the receive
  int tag = -1;
};

// How many there are: while 0, every start goes to the MPI library after one load.
extern std::atomic<int> live_persistents;

// An MPI error code, as of the next.
int make_persistent(std::unique_ptr<Persistent> persistent, MPI_Request* request);
// Of any request: one that is not the binding's is the MPI library's to start.
int start_request(MPI_Request* request);
// Lets the receive of one that was started end.
void end_receive(const Persistent& persistent);
// Before a request is freed that does not run.
void forget_persistent(MPI_Request request);
// Revokes the lanes of its requests.
void revoke_persistents_of(const Communicator& communicator);
// Before MPI_Finalize.
void forget_all_persistents();

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_PERSISTENT_H_
