// The windows that programs make and free: whether there are any says how often the MPI library has to make progress.
#include "interface.h"
#include "progress.h"

namespace {

int after_making(int error) {
  if (error == MPI_SUCCESS) tutti::mpi::count_window(1);
  return error;
}

}  // namespace

extern "C" {

int MPI_Win_create(void* base, MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, MPI_Win* win) {
  return after_making(PMPI_Win_create(base, size, disp_unit, info, comm, win));
}

int MPI_Win_allocate(MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, void* baseptr, MPI_Win* win) {
  return after_making(PMPI_Win_allocate(size, disp_unit, info, comm, baseptr, win));
}

int MPI_Win_allocate_shared(MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, void* baseptr, MPI_Win* win) {
  return after_making(PMPI_Win_allocate_shared(size, disp_unit, info, comm, baseptr, win));
}

int MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win* win) {
  return after_making(PMPI_Win_create_dynamic(info, comm, win));
}

#if MPI_VERSION >= 4
int MPI_Win_create_c(void* base, MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm, MPI_Win* win) {
  if (TUTTI_MPI_LACKS(PMPI_Win_create_c)) return tutti::mpi::report_lack(comm);
  return after_making(PMPI_Win_create_c(base, size, disp_unit, info, comm, win));
}

int MPI_Win_allocate_c(MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm, void* baseptr, MPI_Win* win) {
  if (TUTTI_MPI_LACKS(PMPI_Win_allocate_c)) return tutti::mpi::report_lack(comm);
  return after_making(PMPI_Win_allocate_c(size, disp_unit, info, comm, baseptr, win));
}

int MPI_Win_allocate_shared_c(MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm, void* baseptr,
                              MPI_Win* win) {
  if (TUTTI_MPI_LACKS(PMPI_Win_allocate_shared_c)) return tutti::mpi::report_lack(comm);
  return after_making(PMPI_Win_allocate_shared_c(size, disp_unit, info, comm, baseptr, win));
}
#endif

int MPI_Win_free(MPI_Win* win) {
  const int error = PMPI_Win_free(win);
  if (error == MPI_SUCCESS) tutti::mpi::count_window(-1);
  return error;
}

}  // extern "C"
