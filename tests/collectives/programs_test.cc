// Random programs over several communicators of the same ranks, against a naive model.
#include "programs.h"

#include "sanitizers.h"
#include "suites.h"

namespace tutti::internal::test {
namespace {

Outcome run_all(const std::vector<Seat>& seats, int ranks, const ProgramSizes& sizes) {
  std::string wrong = run_programs(seats, ranks, sizes);
  const std::string left = leave_seats(seats);
  return Outcome{wrong.empty() ? left : wrong};
}

void check_processes(int ranks, int comms, const std::string& transports, const ProgramSizes& sizes) {
  INFO(transports << ", " << ranks << " ranks, " << comms << " communicators");
  const auto outcomes = run_processes(ranks, transports, [&](tuttiComm_t comm, int rank, int n) {
    std::vector<Seat> seats;
    const std::string wrong = make_seats(comm, rank, n, comms, &seats);
    return wrong.empty() ? run_all(seats, n, sizes) : Outcome{"making communicators: " + wrong};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

// ThreadSanitizer only follows ranks of tuttiCommInitAll: rank 0 makes the communicators of all.
void check_threads(int ranks, int comms, const std::string& transports, const ProgramSizes& sizes) {
  INFO(transports << ", " << ranks << " ranks, " << comms << " communicators");
  std::vector<std::vector<tuttiComm_t>> made(static_cast<std::size_t>(comms));
  const auto outcomes = run_threads(ranks, transports, [&](tuttiComm_t comm, int rank, int n) {
    for (std::size_t c = 1; c < made.size() && rank == 0; ++c) {
      made[c].resize(static_cast<std::size_t>(n));
      if (tuttiCommInitAll(made[c].data(), n, nullptr) != tuttiSuccess) return Outcome{"tuttiCommInitAll"};
    }
    if (tuttiBarrier(comm, nullptr) != tuttiSuccess) return Outcome{"no communicators"};
    std::vector<Seat> seats{{comm, rank}};
    for (int c = 1; c < comms; ++c) {
      const int number = number_in(c, rank, n);
      seats.push_back({made[static_cast<std::size_t>(c)][static_cast<std::size_t>(number)], number});
    }
    return run_all(seats, n, sizes);
  });
  REQUIRE(wrong_of(outcomes) == "");
}

constexpr std::uint32_t kShare = kThreadSanitizer ? 20 : kAddressSanitizer ? 4 : 1;

}  // namespace

TEST_CASE("programs over several communicators of threads", "[threads]") {
  for (const int ranks : {2, 3, 5}) {
    check_threads(ranks, 3, "shm", {300 / kShare, 6, 4000});
    check_threads(ranks, 2, "shm", {10 / kShare + 1, 6, 300'000});
  }
  check_threads(4, 1, "shm", {100 / kShare, 6, 4000});
  check_threads(3, 3, "tcp", {80 / kShare, 6, 20'000});
  check_threads(3, 2, "sim:7", {10 / kShare + 1, 6, 2000});
  check_threads(1, 3, "shm", {20 / kShare, 6, 4000});
}

TEST_CASE("programs over several communicators of processes", "[processes]") {
  for (const int ranks : {2, 3, 4}) {
    check_processes(ranks, 3, "shm", {300 / kShare, 6, 4000});
    check_processes(ranks, 2, "shm", {10 / kShare + 1, 6, 300'000});
  }
  check_processes(2, 3, "tcp", {80 / kShare, 6, 20'000});
  check_processes(4, 2, "tcp", {80 / kShare, 6, 20'000});
}

}  // namespace tutti::internal::test
