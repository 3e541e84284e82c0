// mpi.h for the sources that define functions of MPI's interface. Not every mpi.h says that they leave a library.
#ifndef TUTTI_BINDINGS_MPI_INTERFACE_H_
#define TUTTI_BINDINGS_MPI_INTERFACE_H_

#pragma GCC visibility push(default)
#include <mpi.h>
#pragma GCC visibility pop

#include "functions.h"

namespace tutti::mpi {

// Ends the process, saying why, if that library is not of the kind that this was built for, of which handles and
// constants are: programs in C rarely look at what MPI_Init returns.
void require_this_kind();

// That the MPI library lacks a function which the program has called: calls the communicator's error handler. Returns
// the error, MPI_ERR_UNSUPPORTED_OPERATION.
int report_lack(MPI_Comm comm);

}  // namespace tutti::mpi

#ifdef OMPI_PREDEFINED_GLOBAL
#undef OMPI_PREDEFINED_GLOBAL
#define OMPI_PREDEFINED_GLOBAL(type, global)                                 \
  ([] {                                                                      \
    static void* const kVariable = tutti::mpi::find_in_mpi_library(#global); \
    return static_cast<type>(kVariable);                                     \
  }())
#endif

#endif  // TUTTI_BINDINGS_MPI_INTERFACE_H_
