// The MPI library's own functions, found by name when they are first called. The binding needs none of them when it is
// loaded: a program may load its MPI library later and for itself alone, as interpreters do, and with LD_BIND_NOW the
// loader wants every function that a library names, though not every MPI library has those of MPI 4 or of Fortran.
// The binding is linked without undefined names, so a function that is missing here is an error of the linker.
//
// Threads: any.
#ifndef TUTTI_BINDINGS_MPI_FUNCTIONS_H_
#define TUTTI_BINDINGS_MPI_FUNCTIONS_H_

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace tutti::mpi {

// The address of a function or variable of the MPI library; NULL: it has none of that name.
void* find_in_mpi_library(const char* name);
// The same of a function without which nothing goes on: the process ends with a text that names it.
void* require_in_mpi_library(const char* name);

template <std::size_t N>
struct FunctionName {
  char text[N] = {};
  // NOLINTNEXTLINE(google-explicit-constructor): names are written as literals.
  constexpr FunctionName(const char (&name)[N]) { std::copy_n(name, N, text); }
};

template <FunctionName kName>
inline std::atomic<void*> found_function{nullptr};

template <typename Function, FunctionName kName>
Function& mpi_function() {
  void* found = found_function<kName>.load(std::memory_order_acquire);
  if (found == nullptr) [[unlikely]] {
    found = require_in_mpi_library(kName.text);
    found_function<kName>.store(found, std::memory_order_release);
  }
  return *reinterpret_cast<Function*>(found);
}

template <FunctionName kName>
bool lacks_function() {
  if (found_function<kName>.load(std::memory_order_acquire) != nullptr) [[likely]]
    return false;
  void* const found = find_in_mpi_library(kName.text);
  found_function<kName>.store(found, std::memory_order_release);
  return found == nullptr;
}

}  // namespace tutti::mpi

#define TUTTI_MPI_FUNCTION(name) (::tutti::mpi::mpi_function<decltype(::name), #name>())
#define TUTTI_MPI_LACKS(name) (::tutti::mpi::lacks_function<#name>())

#define PMPIX_Grequest_start TUTTI_MPI_FUNCTION(PMPIX_Grequest_start)
#define PMPI_Add_error_code TUTTI_MPI_FUNCTION(PMPI_Add_error_code)
#define PMPI_Add_error_string TUTTI_MPI_FUNCTION(PMPI_Add_error_string)
#define PMPI_Allreduce TUTTI_MPI_FUNCTION(PMPI_Allreduce)
#define PMPI_Bcast TUTTI_MPI_FUNCTION(PMPI_Bcast)
#define PMPI_Comm_call_errhandler TUTTI_MPI_FUNCTION(PMPI_Comm_call_errhandler)
#define PMPI_Comm_create_keyval TUTTI_MPI_FUNCTION(PMPI_Comm_create_keyval)
#define PMPI_Comm_delete_attr TUTTI_MPI_FUNCTION(PMPI_Comm_delete_attr)
#define PMPI_Comm_disconnect TUTTI_MPI_FUNCTION(PMPI_Comm_disconnect)
#define PMPI_Comm_free TUTTI_MPI_FUNCTION(PMPI_Comm_free)
#define PMPI_Comm_get_attr TUTTI_MPI_FUNCTION(PMPI_Comm_get_attr)
#define PMPI_Comm_get_errhandler TUTTI_MPI_FUNCTION(PMPI_Comm_get_errhandler)
#define PMPI_Comm_get_name TUTTI_MPI_FUNCTION(PMPI_Comm_get_name)
#define PMPI_Comm_group TUTTI_MPI_FUNCTION(PMPI_Comm_group)
#define PMPI_Comm_rank TUTTI_MPI_FUNCTION(PMPI_Comm_rank)
#define PMPI_Comm_remote_size TUTTI_MPI_FUNCTION(PMPI_Comm_remote_size)
#define PMPI_Comm_set_attr TUTTI_MPI_FUNCTION(PMPI_Comm_set_attr)
#define PMPI_Comm_set_errhandler TUTTI_MPI_FUNCTION(PMPI_Comm_set_errhandler)
#define PMPI_Comm_set_name TUTTI_MPI_FUNCTION(PMPI_Comm_set_name)
#define PMPI_Comm_size TUTTI_MPI_FUNCTION(PMPI_Comm_size)
#define PMPI_Comm_split TUTTI_MPI_FUNCTION(PMPI_Comm_split)
#define PMPI_Comm_test_inter TUTTI_MPI_FUNCTION(PMPI_Comm_test_inter)
#define PMPI_Errhandler_free TUTTI_MPI_FUNCTION(PMPI_Errhandler_free)
#define PMPI_Error_class TUTTI_MPI_FUNCTION(PMPI_Error_class)
#define PMPI_Finalize TUTTI_MPI_FUNCTION(PMPI_Finalize)
#define PMPI_Finalized TUTTI_MPI_FUNCTION(PMPI_Finalized)
#define PMPI_Get_library_version TUTTI_MPI_FUNCTION(PMPI_Get_library_version)
#define PMPI_Grequest_complete TUTTI_MPI_FUNCTION(PMPI_Grequest_complete)
#define PMPI_Grequest_start TUTTI_MPI_FUNCTION(PMPI_Grequest_start)
#define PMPI_Group_free TUTTI_MPI_FUNCTION(PMPI_Group_free)
#define PMPI_Group_size TUTTI_MPI_FUNCTION(PMPI_Group_size)
#define PMPI_Group_translate_ranks TUTTI_MPI_FUNCTION(PMPI_Group_translate_ranks)
#define PMPI_Init_thread TUTTI_MPI_FUNCTION(PMPI_Init_thread)
#define PMPI_Initialized TUTTI_MPI_FUNCTION(PMPI_Initialized)
#define PMPI_Iprobe TUTTI_MPI_FUNCTION(PMPI_Iprobe)
#define PMPI_Op_commutative TUTTI_MPI_FUNCTION(PMPI_Op_commutative)
#define PMPI_Pack TUTTI_MPI_FUNCTION(PMPI_Pack)
#define PMPI_Query_thread TUTTI_MPI_FUNCTION(PMPI_Query_thread)
#define PMPI_Recv_init TUTTI_MPI_FUNCTION(PMPI_Recv_init)
#define PMPI_Reduce TUTTI_MPI_FUNCTION(PMPI_Reduce)
#define PMPI_Reduce_local TUTTI_MPI_FUNCTION(PMPI_Reduce_local)
#define PMPI_Request_free TUTTI_MPI_FUNCTION(PMPI_Request_free)
#define PMPI_Request_get_status TUTTI_MPI_FUNCTION(PMPI_Request_get_status)
#define PMPI_Send TUTTI_MPI_FUNCTION(PMPI_Send)
#define PMPI_Session_init TUTTI_MPI_FUNCTION(PMPI_Session_init)
#define PMPI_Start TUTTI_MPI_FUNCTION(PMPI_Start)
#define PMPI_Startall TUTTI_MPI_FUNCTION(PMPI_Startall)
#define PMPI_Status_set_cancelled TUTTI_MPI_FUNCTION(PMPI_Status_set_cancelled)
#define PMPI_Status_set_elements TUTTI_MPI_FUNCTION(PMPI_Status_set_elements)
#define PMPI_Test TUTTI_MPI_FUNCTION(PMPI_Test)
#define PMPI_Testall TUTTI_MPI_FUNCTION(PMPI_Testall)
#define PMPI_Testany TUTTI_MPI_FUNCTION(PMPI_Testany)
#define PMPI_Testsome TUTTI_MPI_FUNCTION(PMPI_Testsome)
#define PMPI_Type_commit TUTTI_MPI_FUNCTION(PMPI_Type_commit)
#define PMPI_Type_create_hindexed TUTTI_MPI_FUNCTION(PMPI_Type_create_hindexed)
#define PMPI_Type_dup TUTTI_MPI_FUNCTION(PMPI_Type_dup)
#define PMPI_Type_free TUTTI_MPI_FUNCTION(PMPI_Type_free)
#define PMPI_Type_get_contents TUTTI_MPI_FUNCTION(PMPI_Type_get_contents)
#define PMPI_Type_get_envelope TUTTI_MPI_FUNCTION(PMPI_Type_get_envelope)
#define PMPI_Type_get_extent TUTTI_MPI_FUNCTION(PMPI_Type_get_extent)
#define PMPI_Type_get_true_extent TUTTI_MPI_FUNCTION(PMPI_Type_get_true_extent)
#define PMPI_Type_size TUTTI_MPI_FUNCTION(PMPI_Type_size)
#define PMPI_Type_size_x TUTTI_MPI_FUNCTION(PMPI_Type_size_x)
#define PMPI_Unpack TUTTI_MPI_FUNCTION(PMPI_Unpack)
#define PMPI_Wait TUTTI_MPI_FUNCTION(PMPI_Wait)
#define PMPI_Waitall TUTTI_MPI_FUNCTION(PMPI_Waitall)
#define PMPI_Waitany TUTTI_MPI_FUNCTION(PMPI_Waitany)
#define PMPI_Waitsome TUTTI_MPI_FUNCTION(PMPI_Waitsome)
#define PMPI_Win_allocate TUTTI_MPI_FUNCTION(PMPI_Win_allocate)
#define PMPI_Win_allocate_c TUTTI_MPI_FUNCTION(PMPI_Win_allocate_c)
#define PMPI_Win_allocate_shared TUTTI_MPI_FUNCTION(PMPI_Win_allocate_shared)
#define PMPI_Win_allocate_shared_c TUTTI_MPI_FUNCTION(PMPI_Win_allocate_shared_c)
#define PMPI_Win_create TUTTI_MPI_FUNCTION(PMPI_Win_create)
#define PMPI_Win_create_c TUTTI_MPI_FUNCTION(PMPI_Win_create_c)
#define PMPI_Win_create_dynamic TUTTI_MPI_FUNCTION(PMPI_Win_create_dynamic)
#define PMPI_Win_free TUTTI_MPI_FUNCTION(PMPI_Win_free)
// MPICH has macros for these.
#ifndef PMPI_Comm_c2f
#define PMPI_Comm_c2f TUTTI_MPI_FUNCTION(PMPI_Comm_c2f)
#endif
#ifndef PMPI_Comm_f2c
#define PMPI_Comm_f2c TUTTI_MPI_FUNCTION(PMPI_Comm_f2c)
#endif
#ifndef PMPI_Info_f2c
#define PMPI_Info_f2c TUTTI_MPI_FUNCTION(PMPI_Info_f2c)
#endif
#ifndef PMPI_Op_f2c
#define PMPI_Op_f2c TUTTI_MPI_FUNCTION(PMPI_Op_f2c)
#endif
#ifndef PMPI_Request_c2f
#define PMPI_Request_c2f TUTTI_MPI_FUNCTION(PMPI_Request_c2f)
#endif
#ifndef PMPI_Request_f2c
#define PMPI_Request_f2c TUTTI_MPI_FUNCTION(PMPI_Request_f2c)
#endif
#ifndef PMPI_Type_f2c
#define PMPI_Type_f2c TUTTI_MPI_FUNCTION(PMPI_Type_f2c)
#endif

#endif  // TUTTI_BINDINGS_MPI_FUNCTIONS_H_
