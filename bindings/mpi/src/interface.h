// mpi.h for the sources that define functions of MPI's interface. Not every mpi.h says that they leave a library.
#ifndef TUTTI_BINDINGS_MPI_INTERFACE_H_
#define TUTTI_BINDINGS_MPI_INTERFACE_H_

#pragma GCC visibility push(default)
#include <mpi.h>
#pragma GCC visibility pop

#endif  // TUTTI_BINDINGS_MPI_INTERFACE_H_
