/* The MPI library's extensions, and its names of persistent collectives: Open MPI 4 has these as an extension. */
#ifndef TUTTI_TESTS_BINDINGS_MPI_EXTENSION_H_
#define TUTTI_TESTS_BINDINGS_MPI_EXTENSION_H_

#include <mpi.h>

#if defined(OMPI_MAJOR_VERSION)
#include <mpi-ext.h>
#endif

#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION < 5
#define PERSISTENT(NAME) MPIX_##NAME##_init
#else
#define PERSISTENT(NAME) MPI_##NAME##_init
#endif

#endif /* TUTTI_TESTS_BINDINGS_MPI_EXTENSION_H_ */
