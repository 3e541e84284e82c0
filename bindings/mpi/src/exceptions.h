// Keeps exceptions inside the binding: the callers of MPI's functions do not expect any.
#ifndef TUTTI_BINDINGS_MPI_EXCEPTIONS_H_
#define TUTTI_BINDINGS_MPI_EXCEPTIONS_H_

#include <exception>
#include <new>

#include "interface.h"

namespace tutti::mpi {

// MPI_SUCCESS, or MPI's error class for an exception. Passes on exceptions that do not derive from std::exception: the
// cancellation of a thread, or an exception from the error handler of a C++ program.
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
