#include "interface.h"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#if defined(MPICH)
#include "config.h"
#endif

namespace tutti::mpi {
namespace {

int add_if_mpi(dl_phdr_info* info, std::size_t /*size*/, void* found) {
  const std::string_view path(info->dlpi_name);
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (name.starts_with("libmpi")) static_cast<std::vector<std::string>*>(found)->emplace_back(path);
  return 0;
}

// Makes the symbols of MPI libraries that are loaded, but were not for all, known to all.
void show_mpi_library() {
  std::vector<std::string> paths;
  dl_iterate_phdr(add_if_mpi, &paths);
  // The handles are kept: the library stays.
  for (const std::string& path : paths) dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL);
}

#if defined(MPICH)
constexpr const char* kKind = "MPICH";
constexpr const char* kOwnName = "libtutti_mpich.so";
constexpr const char* kOtherName = "libtutti_openmpi.so";
#else
constexpr const char* kKind = "Open MPI";
constexpr const char* kOwnName = "libtutti_openmpi.so";
constexpr const char* kOtherName = "libtutti_mpich.so";
#endif
constexpr std::array<std::string_view, 3> kLikeMpich = {"MPICH", "Intel(R) MPI", "MVAPICH"};
constexpr std::array<std::string_view, 2> kLikeOpenMpi = {"Open MPI", "Spectrum MPI"};

template <std::size_t N>
const char* found_in(std::string_view text, const std::array<std::string_view, N>& names) {
  for (const std::string_view name : names) {
    if (text.find(name) != std::string_view::npos) return name.data();
  }
  return nullptr;
}

#if defined(MPICH)
// MPI_INIT of Open MPI's Fortran comes to no function of this binding. It can be known by one that no other MPI library
// has, if the program is linked with it.
[[gnu::constructor]] void look_for_other_fortran() {
  if (dlsym(RTLD_DEFAULT, "ompi_init_f") == nullptr || !is_first_process()) return;
  std::fprintf(stderr,
               "tutti: %s serves programs of %s, and this one has the Fortran functions of Open MPI: none of their "
               "collectives is served; preload %s instead\n",
               kOwnName, kKind, kOtherName);
}
#endif

}  // namespace

void require_this_kind() {
  constexpr std::size_t kMost = 8192;  // of all libraries
  std::array<char, kMost> text{};
  int length = 0;
  if (PMPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return;
  const std::string_view version(text.data());
#if defined(MPICH)
  const char* const own = found_in(version, kLikeMpich);
  const char* const other = found_in(version, kLikeOpenMpi);
#else
  const char* const own = found_in(version, kLikeOpenMpi);
  const char* const other = found_in(version, kLikeMpich);
#endif
  if (own != nullptr || other == nullptr) return;
  std::fprintf(
      stderr,
      "tutti: %s serves programs of %s, and this program's MPI library is %s: preload %s instead, or link with "
      "that; the program ends\n",
      kOwnName, kKind, other, kOtherName);
  std::exit(EXIT_FAILURE);
}

int report_lack(MPI_Comm comm) {
  int initialized = 0;
  int finalized = 0;
  PMPI_Initialized(&initialized);
  PMPI_Finalized(&finalized);
  if (initialized != 0 && finalized == 0) PMPI_Comm_call_errhandler(comm, MPI_ERR_UNSUPPORTED_OPERATION);
  return MPI_ERR_UNSUPPORTED_OPERATION;
}

void* find_in_mpi_library(const char* name) {
  void* const found = dlsym(RTLD_DEFAULT, name);
  if (found != nullptr || dlsym(RTLD_DEFAULT, "PMPI_Init_thread") != nullptr) return found;
  show_mpi_library();
  return dlsym(RTLD_DEFAULT, name);
}

void* require_in_mpi_library(const char* name) {
  void* const found = find_in_mpi_library(name);
  if (found != nullptr) return found;
  std::fprintf(stderr, "tutti: %s: this process has no MPI library with the function %s; the program ends\n", kOwnName,
               name);
  std::abort();
}

}  // namespace tutti::mpi
