// mpi.h for the sources that define functions of MPI's interface. Not every mpi.h says that they leave a library.
#ifndef TUTTI_BINDINGS_MPI_INTERFACE_H_
#define TUTTI_BINDINGS_MPI_INTERFACE_H_

#pragma GCC visibility push(default)
#include <mpi.h>
#pragma GCC visibility pop

namespace tutti::mpi {

// A program may load its MPI library after the binding, and for itself alone, as interpreters do. So nothing of that
// library may be needed when the binding is loaded: its functions are bound when they are first called, its variables
// are asked for by name. Both find it after this, which whatever a program calls first does first.
void find_mpi_library();
// Ends the process, saying why, if that library is not of the kind that this was built for, of which handles and
// constants are: programs in C rarely look at what MPI_Init returns.
void require_this_kind();

// The address of a variable of the MPI library; NULL: it has none of that name.
void* mpi_variable(const char* name);

}  // namespace tutti::mpi

#ifdef OMPI_PREDEFINED_GLOBAL
#undef OMPI_PREDEFINED_GLOBAL
#define OMPI_PREDEFINED_GLOBAL(type, global)                          \
  ([] {                                                               \
    static void* const kVariable = tutti::mpi::mpi_variable(#global); \
    return static_cast<type>(kVariable);                              \
  }())
#endif

#endif  // TUTTI_BINDINGS_MPI_INTERFACE_H_
