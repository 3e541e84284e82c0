// What MPI's functions for Fortran need besides those for C. Those of Open MPI go past the functions for C; of MPICH's
// only some of the module mpi_f08 do. Handles and numbers are INTEGERs there, by reference.
#ifndef TUTTI_BINDINGS_MPI_FORTRAN_H_
#define TUTTI_BINDINGS_MPI_FORTRAN_H_

#include <sched.h>

#include <vector>

#include "interface.h"

namespace tutti::mpi::fortran {

static_assert(sizeof(MPI_Fint) == sizeof(int), "arrays of INTEGER are passed on as arrays of int");

// The buffer, MPI_IN_PLACE or MPI_BOTTOM: Fortran has variables that stand for those.
void* address(void* buffer);
// Of the ranks of `comm`; none where they mean nothing.
std::vector<MPI_Datatype> types_of(const MPI_Fint* types, MPI_Fint comm, bool significant);

int start_all(int count, MPI_Fint* requests);
// Waits for it if it is the binding's, before it is freed.
void release(const MPI_Fint* request);
// Waits for those of the binding's.
void complete(int count, const MPI_Fint* requests);
// Completes those that have finished. True if one of the binding's still runs.
bool look(int count, const MPI_Fint* requests);

// Asks `test` until it is true or has set an error. error may be NULL, as everywhere in mpi_f08.
template <typename Test>
void poll(int count, const MPI_Fint* requests, MPI_Fint* error, Test test) {
  MPI_Fint result = MPI_SUCCESS;
  while (!test(&result) && result == MPI_SUCCESS) {
    sched_yield();
    look(count, requests);
  }
  if (error != nullptr) *error = result;
}

}  // namespace tutti::mpi::fortran

#endif  // TUTTI_BINDINGS_MPI_FORTRAN_H_
