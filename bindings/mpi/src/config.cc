#include "config.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "interface.h"
#include "recovery.h"

namespace tutti::mpi {
namespace {

// The binding's only place for getenv.
std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

int number(const char* name, const char* of_what, int otherwise) {
  const std::string_view text = variable(name);
  if (text.empty()) return otherwise;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 0) return value;
  std::fprintf(stderr, "tutti: %s is \"%s\", which is not a number of %s; it counts as %d\n", name, text.data(),
               of_what, otherwise);
  return otherwise;
}

// Whether it is `yes`; not by default.
bool chosen(const char* name, std::string_view yes, std::string_view no) {
  const std::string_view text = variable(name);
  if (text == yes) return true;
  if (!text.empty() && text != no) {
    std::fprintf(stderr, "tutti: %s is \"%s\", neither \"%s\" nor \"%s\"; it counts as \"%s\"\n", name, text.data(),
                 yes.data(), no.data(), no.data());
  }
  return false;
}

Config& values() {
  static Config config{.off = chosen("TUTTI_MPI", "off", "on"),
                       .summary = chosen("TUTTI_MPI_SUMMARY", "1", "0"),
                       .has_timeout = !variable("TUTTI_TIMEOUT_MS").empty(),
                       .nonblocking_bytes = number("TUTTI_MPI_NONBLOCKING", "bytes", kNonblockingBytes),
                       .after = number("TUTTI_MPI_AFTER", "calls", kAfter)};
  return config;
}

// `least` and `most` of all ranks; the most counts.
void say_uneven(const char* name, int least, int most) {
  if (least == most) return;
  std::fprintf(stderr, "tutti: %s is %d on one rank and %d on another; it counts as %d on all\n", name, least, most,
               most);
}

}  // namespace

const Config& config() {
  return values();
}

void agree_on_config() {
  Config& own = values();
  const int off = own.off ? 1 : 0;
  const int summary = own.summary ? 1 : 0;
  const std::array mine = {off,
                           -off,
                           summary,
                           own.after,
                           -own.after,
                           own.nonblocking_bytes,
                           -own.nonblocking_bytes,
                           library_recovers() ? 1 : 0};
  auto most = mine;
  PMPI_Allreduce(mine.data(), most.data(), static_cast<int>(mine.size()), MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  own.off = most[0] == 1;
  own.summary = most[2] == 1;
  own.after = most[3];
  own.nonblocking_bytes = most[5];
  own.recovers = most[7] == 1;
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) return;
  if (most[0] != -most[1]) std::fputs("tutti: TUTTI_MPI is off on some ranks alone; it counts for all\n", stderr);
  say_uneven("TUTTI_MPI_AFTER", -most[4], most[3]);
  say_uneven("TUTTI_MPI_NONBLOCKING", -most[6], most[5]);
}

void leave_all() {
  values().unreadable = true;
}

bool is_first_process() {
  const std::string_view rank = variable("PMIX_RANK");
  return rank.empty() || rank == "0";
}

}  // namespace tutti::mpi
