// What keeps exceptions in the binding: the callers of MPI's functions know none.
#ifndef TUTTI_BINDINGS_MPI_EXCEPTIONS_H_
#define TUTTI_BINDINGS_MPI_EXCEPTIONS_H_

#include <exception>
#include <new>

#include "interface.h"

namespace tutti::mpi {

// MPI_SUCCESS, or the class of error that an exception is to MPI. What is not of the standard library's goes its way:
// the end of a thread that is cancelled, or what an error handler of a program in C++ throws.
template <typename Call>
int caught(Call call) {
  try {
    call();
    return MPI_SUCCESS;
  } catch (const std::bad_alloc&) {
    return MPI_ERR_NO_MEM;
  } catch (const std::exception&) {
    return MPI_ERR_INTERN;
  }
}

// Calls the communicator's error handler. Returns the error.
inline int raise_error(MPI_Comm comm, int error) {
  PMPI_Comm_call_errhandler(comm, error);
  return error;
}

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_EXCEPTIONS_H_
