// Tutti's communicators, each used by one MPI communicator or one persistent request at a time. MPI orders the calls of
// a communicator, but not the starts of its persistent requests: each request has a lane of its own, so that ranks may
// start requests in any order. A lane that is released serves the next user that has the same ranks in the same order.
//
// Threads: any. Of two threads that take lanes of the same ranks at the same time, the second makes a new one.
#ifndef TUTTI_BINDINGS_MPI_LANES_H_
#define TUTTI_BINDINGS_MPI_LANES_H_

#include <tutti/tutti.h>

#include <cstdint>
#include <vector>

#include "interface.h"
#include "summary.h"

namespace tutti::mpi {

struct Pool;

struct Lane {
  tuttiComm_t comm = nullptr;
  tuttiStream_t stream = nullptr;  // of calls that do not block; made at the first, or with a persistent request
  int ranks = 0;
  // The order in which MPI_Finalize destroys lanes: rank 0 draws it, all ranks have the same. Each destruction waits
  // for peers, and the order in which lanes were made need not be the same on all ranks.
  std::uint64_t turn = 0;
  Pool* pool = nullptr;
  int slot = -1;  // in the pool, the same on all ranks; -1: the lane is destroyed when it is released
};

// The communicator that asks for a lane, and this rank's values for the exchange with the others.
struct Asking {
  MPI_Comm handle = MPI_COMM_NULL;
  int rank = 0;
  int ranks = 0;
  // A communicator of the same ranks, from which a new lane is split. NULL: the ranks join by a new unique id.
  tuttiComm_t parent = nullptr;
  // Why this rank would rather leave the call to the MPI library. One such rank decides for all.
  Reason reason = Reason::kNone;
};

struct Given {
  Lane* lane = nullptr;  // NULL: `reason` says why
  Reason reason = Reason::kNone;
  bool made = false;        // none of the lanes that exist was free on all ranks
  int error = MPI_SUCCESS;  // of the MPI library; the caller calls the error handler. There is no lane then
};

// Its processes' ranks in MPI_COMM_WORLD, by rank; MPI_UNDEFINED: of another world.
std::vector<int> ranks_in_world(MPI_Comm handle, int ranks);

// Collective over the MPI communicator, waits for its other ranks. All of them get the same lane, or none.
Given take_lane(const Asking& asking);
// Call it when this rank no longer uses the lane; others may still use it. Does not wait for other ranks.
void release_lane(Lane& lane);
// Destroys released lanes that are not kept. May wait for peers.
void destroy_surplus_lanes();
// Before MPI_Finalize, when no lane is used any more.
void destroy_all_lanes();

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_LANES_H_
