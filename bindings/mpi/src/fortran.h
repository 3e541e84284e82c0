// Helpers of MPI's functions for Fortran. Open MPI's Fortran functions do not call the C functions; of MPICH's, only
// some of the module mpi_f08 do not. In Fortran, handles and numbers are INTEGERs, passed by reference.
#ifndef TUTTI_BINDINGS_MPI_FORTRAN_H_
#define TUTTI_BINDINGS_MPI_FORTRAN_H_

#include <sched.h>

#include <vector>

#include "exceptions.h"
#include "interface.h"
#include "requests.h"

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

// The statuses as Failures::of_several() takes them: NULL if the program ignores them.
void* known(MPI_Fint* statuses);

using Testany = void(MPI_Fint* count, MPI_Fint* requests, MPI_Fint* index, MPI_Fint* flag, MPI_Fint* status,
                     MPI_Fint* error);
// From which number on the MPI library's own functions count requests: those of MPICH 4 for mpi_f08 from 0.
int first_index(Testany* testany);

// Asks test(Failures &, MPI_Fint &result) until it is true or has set an error. error may be NULL, as everywhere in
// mpi_f08.
template <typename Test>
void poll(int count, const MPI_Fint* requests, MPI_Fint* error, Test test) {
  MPI_Fint result = MPI_SUCCESS;
  while (true) {
    look(count, requests);
    Failures failures(count, Requests::in_fortran(requests));
    if (test(failures, result) || result != MPI_SUCCESS) break;
    sched_yield();
  }
  if (error != nullptr) *error = result;
}

}  // namespace tutti::mpi::fortran

#endif  // TUTTI_BINDINGS_MPI_FORTRAN_H_
