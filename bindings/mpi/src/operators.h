// MPI's operators and the program's, as tutti's.
#ifndef TUTTI_BINDINGS_MPI_OPERATORS_H_
#define TUTTI_BINDINGS_MPI_OPERATORS_H_

#include <tutti/tutti.h>

#include <cstddef>
#include <optional>

#include "communicators.h"
#include "datatypes.h"
#include "interface.h"

namespace tutti::mpi {

// An operator whose elements are opaque to tutti and combined by MPI_Reduce_local. Does not move: tutti has its
// address.
struct BoundOperator {
  tuttiComm_t comm = nullptr;
  tuttiRedOp_t op = tuttiSum;
  tuttiDataType_t datatype = tuttiUint8;
  MPI_Op mpi_op = MPI_OP_NULL;
  MPI_Datatype mpi_type = MPI_DATATYPE_NULL;
  std::size_t extent = 0;
  std::size_t alignment = 1;

  BoundOperator() = default;
  ~BoundOperator();
  BoundOperator(const BoundOperator&) = delete;
  BoundOperator& operator=(const BoundOperator&) = delete;
};

// How a reduction is served. Operator and datatype are the same on all ranks, so this is, too.
struct Reduction {
  Reason reason = Reason::kNone;        // if not kNone, the MPI library serves it
  tuttiResult_t result = tuttiSuccess;  // of making the operator
  tuttiRedOp_t op = tuttiSum;
  tuttiDataType_t datatype = tuttiUint8;
  std::size_t extent = 0;            // bytes from an element to the next, as tutti sees them
  bool holes = false;                // elements must be laid out in memory of the binding's
  std::optional<BoundOperator> own;  // of this call alone
};

// With `nonblocking` only what tutti combines by itself: functions of the program stay in the program's threads.
void bind_reduction(Communicator& communicator, MPI_Op op, MPI_Datatype type, const Layout& layout, bool nonblocking,
                    Reduction& reduction);

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_OPERATORS_H_
