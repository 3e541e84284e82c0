// Fortran. MPICH's functions for it call MPI_ in C, which is enough, but that those of the module mpi_f08 which begin
// and end MPI call PMPI_.
#include "interface.h"

#if defined(MPICH)
extern "C" {

// An error argument that is left out is NULL.
#pragma GCC visibility push(default)
void mpi_init_f08_(int* error);
void mpi_init_thread_f08_(const int* required, int* provided, int* error);
void mpi_finalize_f08_(int* error);
#pragma GCC visibility pop

void mpi_init_f08_(int* error) {
  const int result = MPI_Init(nullptr, nullptr);
  if (error != nullptr) *error = result;
}

void mpi_init_thread_f08_(const int* required, int* provided, int* error) {
  const int result = MPI_Init_thread(nullptr, nullptr, *required, provided);
  if (error != nullptr) *error = result;
}

void mpi_finalize_f08_(int* error) {
  const int result = MPI_Finalize();
  if (error != nullptr) *error = result;
}

}  // extern "C"
#endif
