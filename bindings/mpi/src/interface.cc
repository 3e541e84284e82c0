#include "interface.h"

#include <dlfcn.h>
#include <link.h>

#include <string>
#include <string_view>
#include <vector>

namespace tutti::mpi {
namespace {

int add_if_mpi(dl_phdr_info* info, std::size_t /*size*/, void* found) {
  const std::string_view path(info->dlpi_name);
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (name.starts_with("libmpi")) static_cast<std::vector<std::string>*>(found)->emplace_back(path);
  return 0;
}

// Makes the symbols of MPI libraries that are loaded, but were not for all, known to all.
bool show_mpi_library() {
  if (dlsym(RTLD_DEFAULT, "PMPI_Init_thread") != nullptr) return true;
  std::vector<std::string> paths;
  dl_iterate_phdr(add_if_mpi, &paths);
  // The handles are kept: the library stays.
  for (const std::string& path : paths) dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL);
  return true;
}

}  // namespace

void find_mpi_library() {
  [[maybe_unused]] static const bool kShown = show_mpi_library();
}

void* mpi_variable(const char* name) {
  find_mpi_library();
  return dlsym(RTLD_DEFAULT, name);
}

}  // namespace tutti::mpi
