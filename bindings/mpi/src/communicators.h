// The tutti communicator of an MPI communicator.
#ifndef TUTTI_BINDINGS_MPI_COMMUNICATORS_H_
#define TUTTI_BINDINGS_MPI_COMMUNICATORS_H_

#include <tutti/tutti.h>

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "interface.h"
#include "summary.h"

namespace tutti::mpi {

struct BoundOperator;
struct BoundOperatorDeleter {
  void operator()(BoundOperator* bound) const;
};

// Owned by an attribute of the MPI communicator, which frees it with the communicator, or by the end of MPI.
struct Communicator {
  MPI_Comm handle = MPI_COMM_NULL;
  tuttiComm_t comm = nullptr;     // NULL: `reason` says why calls go to the MPI library
  Reason reason = Reason::kNone;  // the same on all ranks; kFew: tutti's communicator is yet to be made
  int calls = 0;                  // of collectives until then
  int rank = 0;
  int ranks = 0;
  // When tutti's communicator ends among the others at MPI_Finalize: drawn by rank 0, the same on all ranks. Each waits
  // for its peers, and the order in which communicators were made, or met, need not be the same everywhere.
  std::array<int, 2> turn = {0, 0};
  int held = 0;  // by persistent requests, which may outlive the MPI communicator
  bool outlived = false;
  tuttiStream_t stream = nullptr;  // of nonblocking calls; made at the first
  // Operators with functions for predefined datatypes, made once.
  std::vector<std::unique_ptr<BoundOperator, BoundOperatorDeleter>> operators;

  Communicator() = default;
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
};

// Changes when a communicator is freed: what was found before may be another one's by now.
extern std::atomic<unsigned> communicator_generation;

struct Found {
  MPI_Comm handle{};  // at first what is no handle, without asking the MPI library
  unsigned generation = 0;
  Communicator* communicator = nullptr;
};
inline thread_local Found last_found __attribute__((tls_model("initial-exec")));

// Whether a call makes tutti's communicator.
enum class Making {
  kNever,    // it must not wait for other ranks
  kWhenDue,  // after TUTTI_MPI_AFTER others
  kNow,      // more calls will follow
};

Communicator* find_slowly(MPI_Comm handle, Making making);

// Of a call of a collective, which all ranks of `handle` make in the same order: so all count alike how many there have
// been, and make tutti's communicator at the same one. Never NULL.
inline Communicator* find_communicator(MPI_Comm handle, Making making) {
  const Found& found = last_found;
  if (found.handle == handle && found.communicator != nullptr &&
      found.generation == communicator_generation.load(std::memory_order_acquire)) {
    return found.communicator;
  }
  return find_slowly(handle, making);
}

// Where no call is to go to the MPI library first: gives `made`, which the ranks of `parent` have just made, a part of
// parent's tutti communicator, if there is one. Collective over parent; `made` may be MPI_COMM_NULL on some ranks.
void split_along(MPI_Comm parent, MPI_Comm made);
// Ends what belongs to the communicator, before it is freed.
void forget_communicator(MPI_Comm handle);
// Before persistent requests let go at MPI_Finalize: their communicators end with all others, each in its turn.
void end_in_turn();
void forget_all_communicators();
// A communicator of this process alone. No duplicate: that would call the functions of attributes which the program has
// given to MPI_COMM_SELF, as it does to hear of MPI_Finalize. An MPI error code.
int make_own_self(MPI_Comm& made);
// Between them the communicator is there, also if the program frees its own.
void hold(Communicator& communicator);
void let_go(Communicator& communicator);

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_COMMUNICATORS_H_
