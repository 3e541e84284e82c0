// The tutti communicator of an MPI communicator.
#ifndef TUTTI_BINDINGS_MPI_COMMUNICATORS_H_
#define TUTTI_BINDINGS_MPI_COMMUNICATORS_H_

#include <tutti/tutti.h>

#include <atomic>
#include <memory>
#include <vector>

#include "interface.h"
#include "lanes.h"
#include "summary.h"

namespace tutti::mpi {

struct BoundOperator;
struct BoundOperatorDeleter {
  void operator()(BoundOperator* bound) const;
};

// Owned by an attribute of the MPI communicator, which frees it with the communicator, or by the end of MPI.
struct Communicator {
  std::atomic<MPI_Comm> handle{MPI_COMM_NULL};  // a stand-in, when the program has freed its own
  Lane* lane = nullptr;                         // of all but persistent calls
  tuttiComm_t comm = nullptr;                   // the lane's; NULL: `reason` says why calls go to the MPI library
  Reason reason = Reason::kNone;                // the same on all ranks; kFew: tutti's communicator is yet to be made
  int calls = 0;                                // of collectives until then that the MPI library has taken
  int rank = 0;
  int ranks = 0;
  int held = 0;  // by requests, which may outlive the MPI communicator
  bool outlived = false;
  bool revoked = false;  // heed_revocations() has revoked its lanes
  // Operators with functions for predefined datatypes, made once.
  std::vector<std::unique_ptr<BoundOperator, BoundOperatorDeleter>> operators;

  Communicator() = default;
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Releases the lane. Does not wait for other ranks.
  void leave_tutti();
};

// Changes when a communicator is freed: what was found before may be another one's by now.
extern std::atomic<unsigned> communicator_generation;

struct Found {
  MPI_Comm handle{};  // initially a value that is never a handle; this needs no call of the MPI library
  unsigned generation = 0;
  Communicator* communicator = nullptr;
};
inline thread_local Found last_found __attribute__((tls_model("initial-exec")));

Communicator* find_slowly(MPI_Comm handle);

// Asks no other rank. Never NULL.
inline Communicator* find_communicator(MPI_Comm handle) {
  const Found& found = last_found;
  if (found.handle == handle && found.communicator != nullptr &&
      found.generation == communicator_generation.load(std::memory_order_acquire)) {
    return found.communicator;
  }
  return find_slowly(handle);
}

// Whether a call makes tutti's communicator.
enum class Making {
  kNever,    // it must not wait for other ranks
  kWhenDue,  // after TUTTI_MPI_AFTER others
  kNow,      // more calls will follow
};

// All ranks call a communicator's collectives in the same order, so all count the same number of calls that the MPI
// library has served, and all create tutti's communicator in the same call. A refused call does not count and creates
// nothing, because the other ranks need not make it.

// Of a communicator of kFew: kNone if the call is the one that makes tutti's communicator, else why it is not.
Reason why_not_yet(const Communicator& communicator, Making making);
// Returns MPI_SUCCESS, or the MPI library's error, for which the caller calls the error handler: a rank has died, or
// the communicator is revoked.
int make_tutti(Communicator& communicator);
// Revokes tutti's communicators of those that the program, here or on another rank, has revoked. The MPI library makes
// that known to every rank, also if the rank that revoked has no communicator of tutti's. Waits for no rank.
void heed_revocations();
// Whether it is an error of a call's arguments, which MPI libraries look at before they send anything.
bool is_refusal(int error);
// After a call that has gone to the MPI library, which has not refused it.
void count_taken(Communicator& communicator);

// A lane beside that of the communicator, which has one. `reason`: as Asking::reason. Collective, waits for other
// ranks.
Given take_lane_beside(const Communicator& communicator, Reason reason);
// Ends what belongs to the communicator, before it is freed.
void forget_communicator(MPI_Comm handle);
// Before persistent requests let go at MPI_Finalize: their communicators end with all others.
void end_in_turn();
void forget_all_communicators();
// A communicator of this process alone. No duplicate: that would call the functions of attributes which the program has
// given to MPI_COMM_SELF, as it does to hear of MPI_Finalize. An MPI error code.
int make_own_self(MPI_Comm& made);
// Whether this thread is in that: the MPI library may make progress there.
bool makes_own_self();
// Between them the communicator is there, also if the program frees its own. Persistent requests hold theirs; others
// when it is freed before they are complete.
void hold(Communicator& communicator);
// May wait for peers.
void let_go(Communicator& communicator);
// Does not wait for other ranks; let_go_of_left() does the work that needs them.
void let_go_soon(Communicator& communicator);

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_COMMUNICATORS_H_
