// Ranks as processes of this machine.
#include <algorithm>
#include <array>
#include <cstdint>
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

enum class Moves { kAllGather, kAllToAll, kOneWay };

tuttiResult_t move(Moves what, const std::vector<std::uint32_t>& send, std::vector<std::uint32_t>* recv,
                   std::size_t count, tuttiComm_t comm, int rank) {
  switch (what) {
    case Moves::kAllGather: return tuttiAllGather(send.data(), recv->data(), count, tuttiUint32, comm, nullptr);
    case Moves::kAllToAll: return tuttiAlltoAll(send.data(), recv->data(), count, tuttiUint32, comm, nullptr);
    case Moves::kOneWay: break;
  }
  return rank == 0 ? tuttiSend(send.data(), count, tuttiUint32, 1, comm, nullptr)
                   : tuttiRecv(recv->data(), count, tuttiUint32, 0, comm, nullptr);
}

// A call that has returned no longer reads its buffers: data written there at once reaches no peer.
std::string overwrite_at_once(Moves what, std::size_t bytes, tuttiComm_t comm, int rank) {
  const std::size_t count = bytes / sizeof(std::uint32_t);
  std::vector<std::uint32_t> send(2 * count);
  std::vector<std::uint32_t> recv(2 * count);
  for (std::uint32_t round = 1; round <= 300; ++round) {
    std::fill(send.begin(), send.end(), round * 2 + static_cast<std::uint32_t>(rank));
    if (move(what, send, &recv, count, comm, rank) != tuttiSuccess) return tuttiGetLastError(comm);
    std::fill(send.begin(), send.end(), 0);
    if (what == Moves::kOneWay && rank == 0) continue;
    const std::uint32_t expected = round * 2 + static_cast<std::uint32_t>(1 - rank);
    const auto* const from = recv.data() + (what == Moves::kOneWay || rank == 1 ? 0 : count);
    if (std::any_of(from, from + count, [&](std::uint32_t x) { return x != expected; })) {
      return std::to_string(bytes) + " bytes: what was written after the call has arrived";
    }
  }
  return {};
}

}  // namespace

TEST_CASE("buffers belong to the caller again when a call returns", "[shm]") {
  for (const Moves what : {Moves::kAllGather, Moves::kAllToAll, Moves::kOneWay}) {
    const auto outcomes = run_processes(2, "shm", [&](tuttiComm_t comm, int rank, int) {
      for (const std::size_t kib : {20, 40, 48, 56, 64, 80, 200, 330, 512, 1024}) {
        if (std::string wrong = overwrite_at_once(what, kib << 10, comm, rank); !wrong.empty()) return Outcome{wrong};
      }
      return Outcome{};
    });
    INFO(static_cast<int>(what));
    CHECK(wrong_of(outcomes) == "");
  }
}

TEST_CASE("processes over shared memory", "[shm]") {
  check_transport("shm");
}

TEST_CASE("processes over TCP", "[tcp]") {
  check_transport("tcp");
}

TEST_CASE("processes with all transports allowed", "[default]") {
  for (const int ranks : {1, 2, 6}) require_all(run_processes, ranks, "shm,tcp", every_size(ranks, kMiB));
}

TEST_CASE("rank 0's transports apply to all processes, whatever the others' are", "[default]") {
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
