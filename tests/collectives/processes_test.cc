// Ranks as processes of this machine.
#include <array>
#include <string>
#include <vector>

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

TEST_CASE("rank 0's transports hold for all processes, whatever the others' are", "[default]") {
  const std::vector<std::vector<std::string>> settings = {
      {"tcp", "shm"}, {"shm", "tcp"}, {"shm,tcp", "shm:netns", "tcp"}, {"tcp", "shm,tcp", "shm", "shm,verbs,tcp"}};
  for (const std::vector<std::string>& transports : settings) {
    const auto outcomes = run_unlike_processes(transports, [&](tuttiComm_t comm, int rank, int ranks) {
      std::array<char, 128> text{};
      if (tuttiCommExplain(comm, tuttiCollectiveAllReduce, 64, text.data(), text.size()) != tuttiSuccess) {
        return Outcome{tuttiGetLastError(comm)};
      }
      const std::string expected = transports[0] == "tcp" ? " over tcp" : " over shm";
      if (!std::string(text.data()).ends_with(expected)) return Outcome{text.data()};
      return Outcome{Runner(comm, rank, ranks).run_all(every_root(ranks))};
    });
    INFO(transports[0] << ", then " << transports[1]);
    REQUIRE(wrong_of(outcomes) == "");
  }
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
