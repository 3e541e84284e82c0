#include "config.h"

#include <cstdlib>
#include <string_view>

namespace tutti::mpi {
namespace {

// The binding's only place for getenv.
std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

const Config& config() {
  static const Config kConfig{.off = variable("TUTTI_MPI") == "off",
                              .summary = !variable("TUTTI_MPI_SUMMARY").empty() && variable("TUTTI_MPI_SUMMARY") != "0",
                              .has_timeout = !variable("TUTTI_TIMEOUT_MS").empty()};
  return kConfig;
}

}  // namespace tutti::mpi
