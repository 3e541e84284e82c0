#include "config.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace tutti::mpi {
namespace {

// The binding's only place for getenv.
std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

int number(const char* name, int otherwise) {
  const std::string_view text = variable(name);
  if (text.empty()) return otherwise;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 0) return value;
  std::fprintf(stderr, "tutti: %s is \"%s\", which is no number of calls; it counts as %d\n", name, text.data(),
               otherwise);
  return otherwise;
}

}  // namespace

const Config& config() {
  static const Config kConfig{.off = variable("TUTTI_MPI") == "off",
                              .summary = !variable("TUTTI_MPI_SUMMARY").empty() && variable("TUTTI_MPI_SUMMARY") != "0",
                              .has_timeout = !variable("TUTTI_TIMEOUT_MS").empty(),
                              .after = number("TUTTI_MPI_AFTER", kAfter)};
  return kConfig;
}

}  // namespace tutti::mpi
