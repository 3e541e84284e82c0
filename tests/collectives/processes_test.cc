// Ranks as processes of this machine.
#include "suites.h"

namespace tutti::internal::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

void check_transport(const std::string& transports) {
  for (const int ranks : {2, 3, 4, 5, 8}) {
    std::vector<Spec> specs = every_size(ranks, ranks <= 4 ? 4 * kMiB : kMiB);
    for (const Spec& s : every_root(ranks)) specs.push_back(s);
    require_all(run_processes, ranks, transports, specs);
  }
  for (const int ranks : {2, 3}) require_all(run_processes, ranks, transports, every_type(ranks, 1021));
  require_same_bits(run_processes, 5, transports);
}

}  // namespace

TEST_CASE("processes over shared memory", "[shm]") {
  check_transport("shm");
}

TEST_CASE("processes over TCP", "[tcp]") {
  check_transport("tcp");
}

TEST_CASE("processes with all transports allowed", "[default]") {
  for (const int ranks : {1, 2, 6}) require_all(run_processes, ranks, "shm,tcp", every_size(ranks, kMiB));
}

TEST_CASE("many processes", "[many]") {
  for (const char* transports : {"shm", "tcp"}) {
    for (const int ranks : {16, 33}) {
      std::vector<Spec> specs = every_size(ranks, 40'000);
      for (Spec s : every_size(ranks, kMiB / 4)) {
        if (s.count % 5 == 0) specs.push_back(s);
      }
      require_all(run_processes, ranks, transports, specs);
    }
  }
}

}  // namespace tutti::internal::test
