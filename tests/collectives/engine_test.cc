// Many communicators of one process, whose queued operations one progress engine drives.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "sanitizers.h"
#include "suites.h"

namespace tutti::internal::test {
namespace {

std::string name(tuttiResult_t result) {
  return result == tuttiSuccess ? "" : std::string(tuttiGetErrorString(result)) + ": " + tuttiGetLastError(nullptr);
}

// This rank's communicators of several jobs.
using Comms = std::vector<tuttiComm_t>;

// More communicators of the same ranks, each with a stream.
class Family {
 public:
  explicit Family(const Comms& comms) : members_(comms.size()) {
    for (std::size_t i = 0; i < comms.size(); ++i) {
      members_[i].comm = comms[i];
      note(tuttiStreamCreate(&members_[i].stream));
    }
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;
  ~Family() {
    for (const Member& member : members_) (void)tuttiStreamDestroy(member.stream);
    for (const Member& member : members_) (void)tuttiCommDestroy(member.comm);
  }
  struct Member {
    tuttiComm_t comm = nullptr;
    tuttiStream_t stream = nullptr;
  };
  [[nodiscard]] const Member& operator[](std::size_t i) const { return members_[i]; }
  [[nodiscard]] std::size_t size() const { return members_.size(); }
  void note(tuttiResult_t result) {
    if (wrong.empty()) wrong = name(result);
  }
  std::string wrong;

 private:
  std::vector<Member> members_;
};

using FamilyBody = std::function<Outcome(Family& family, int rank, int ranks)>;
using RunFamily = std::vector<Outcome> (*)(int ranks, const std::string& transports, std::size_t comms,
                                           const FamilyBody& body);

std::vector<Outcome> run_family_of_processes(int ranks, const std::string& transports, std::size_t comms,
                                             const FamilyBody& body) {
  return run_processes(ranks, transports, [&](tuttiComm_t parent, int rank, int n) {
    Comms own(comms);
    for (tuttiComm_t& comm : own) {
      tuttiUniqueId id{};
      tuttiResult_t result = rank == 0 ? tuttiGetUniqueId(&id) : tuttiSuccess;
      if (result == tuttiSuccess) result = tuttiBroadcast(&id, &id, sizeof id, tuttiUint8, 0, parent, nullptr);
      if (result == tuttiSuccess) result = tuttiCommInitRank(&comm, n, id, rank);
      if (result != tuttiSuccess) return Outcome{name(result)};
    }
    Family family(own);
    return body(family, rank, n);
  });
}

std::vector<Outcome> run_family_of_threads(int ranks, const std::string& transports, std::size_t comms,
                                           const FamilyBody& body) {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.transports = transports.c_str();
  std::vector<Comms> by_rank(static_cast<std::size_t>(ranks), Comms(comms));
  for (std::size_t c = 0; c < comms; ++c) {
    Comms job(static_cast<std::size_t>(ranks));
    REQUIRE(tuttiCommInitAllConfig(job.data(), ranks, nullptr, &config) == tuttiSuccess);
    for (std::size_t r = 0; r < job.size(); ++r) by_rank[r][c] = job[r];
  }
  return run_threads(ranks, transports, [&](tuttiComm_t, int rank, int n) {
    Family family(by_rank[static_cast<std::size_t>(rank)]);
    return body(family, rank, n);
  });
}

std::vector<std::size_t> shuffled(std::size_t n, std::mt19937* random) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), *random);
  return order;
}

// Each rank queues on the communicators in its own order, and waits in another one.
constexpr std::size_t kComms = 5;
std::string in_own_orders(Family& family, int rank, int ranks) {
  constexpr std::size_t kRounds = kThreadSanitizer ? 10 : 30;
  constexpr std::array<std::size_t, 4> kCounts{1, 100, 5000, 70'000};
  std::mt19937 own(static_cast<unsigned>(rank) + 1);
  std::array<std::vector<std::uint64_t>, kComms> data;
  const auto sum = static_cast<std::uint64_t>(ranks * (ranks + 1) / 2);
  for (std::size_t round = 0; round < kRounds && family.wrong.empty(); ++round) {
    for (const std::size_t c : shuffled(kComms, &own)) {
      data[c].assign(kCounts[(round + c) % kCounts.size()], static_cast<std::uint64_t>(rank + 1));
      for (std::size_t i = 0; i <= (round + c) % 3; ++i) {
        family.note(tuttiAllReduce(data[c].data(), data[c].data(), data[c].size(), tuttiUint64,
                                   i == 0 ? tuttiSum : tuttiMax, family[c].comm, family[c].stream));
      }
    }
    for (const std::size_t c : shuffled(kComms, &own)) {
      family.note(tuttiStreamSynchronize(family[c].stream));
      const auto is_wrong = [&](std::uint64_t v) { return v != sum; };
      if (family.wrong.empty() && std::any_of(data[c].begin(), data[c].end(), is_wrong))
        family.wrong = "a wrong sum in round " + std::to_string(round) + " of communicator " + std::to_string(c);
    }
  }
  return family.wrong;
}

constexpr std::uint64_t kOftenEnough = 5;

// How often a short operation was complete while a long one of another communicator was still running: until that is so
// five times on all ranks. The long one may be complete first where this thread waits long for a processor.
std::string beside_a_long_one(Family& family, std::uint64_t* overtaken) {
  std::vector<float> much(std::size_t{4} << 20, 1);
  float little = 1;
  const auto all_reduce = [&](float* v, std::size_t n, std::size_t c) {
    family.note(tuttiAllReduce(v, v, n, tuttiFloat32, tuttiMax, family[c].comm, family[c].stream));
  };
  // Makes the connections.
  all_reduce(much.data(), much.size(), 0);
  all_reduce(&little, 1, 1);
  for (std::size_t c : {0, 1}) family.note(tuttiStreamSynchronize(family[c].stream));
  std::uint64_t on_all = 0;
  for (int times = 0; times < 60 && on_all < kOftenEnough && family.wrong.empty(); ++times) {
    for (int i = 0; i < 4; ++i) all_reduce(much.data(), much.size(), 0);
    all_reduce(&little, 1, 1);
    family.note(tuttiStreamSynchronize(family[1].stream));
    *overtaken += tuttiStreamQuery(family[0].stream) == tuttiInProgress ? 1 : 0;
    family.note(tuttiStreamSynchronize(family[0].stream));
    family.note(tuttiAllReduce(overtaken, &on_all, 1, tuttiUint64, tuttiMin, family[0].comm, nullptr));
  }
  return family.wrong;
}

std::set<std::string> threads() {
  std::set<std::string> numbers;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    numbers.insert(entry.path().filename());
  }
  return numbers;
}

// How many have begun since there were those of `before`, some of which may have ended: those of the initialisation.
std::size_t more_than(const std::set<std::string>& before) {
  const std::set<std::string> now = threads();
  return static_cast<std::size_t>(
      std::count_if(now.begin(), now.end(), [&](const auto& number) { return before.count(number) == 0; }));
}

std::size_t progress_threads() {
  const char* const asked = std::getenv("TUTTI_PROGRESS_THREADS");
  return asked != nullptr ? static_cast<std::size_t>(std::atoi(asked)) : 1;
}

std::string by_as_many_threads(Family& family) {
  const std::set<std::string> before = threads();
  std::array<std::int32_t, 8> values{};
  for (int round = 0; round < 3; ++round) {
    for (std::size_t c = 0; c < family.size(); ++c) {
      family.note(tuttiAllReduce(&values[c], &values[c], 1, tuttiInt32, tuttiSum, family[c].comm, family[c].stream));
    }
    for (std::size_t c = 0; c < family.size(); ++c) family.note(tuttiStreamSynchronize(family[c].stream));
    if (const std::size_t more = more_than(before); more != progress_threads())
      return std::to_string(more) + " more threads than before anything was queued";
  }
  return family.wrong;
}

void check_own_orders(RunFamily run) {
  for (const char* transports : {"shm", "tcp"}) {
    for (const int ranks : {1, 2, 3, 4}) {
      INFO(transports << " " << ranks);
      REQUIRE(wrong_of(run(ranks, transports, kComms, [](Family& family, int rank, int n) {
                return Outcome{in_own_orders(family, rank, n)};
              })) == "");
    }
  }
}

void check_beside_a_long_one(RunFamily run) {
  const auto outcomes = run(2, "shm", 2, [](Family& family, int, int) {
    Outcome outcome;
    outcome.wrong = beside_a_long_one(family, &outcome.digest);
    return outcome;
  });
  REQUIRE(wrong_of(outcomes) == "");
  for (const Outcome& outcome : outcomes) CHECK(outcome.digest >= kOftenEnough);
}

}  // namespace

TEST_CASE("threads use communicators in different orders", "[threads]") {
  check_own_orders(run_family_of_threads);
}
TEST_CASE("processes use communicators in different orders", "[processes]") {
  check_own_orders(run_family_of_processes);
}
TEST_CASE("a long operation of another communicator of threads delays no short one", "[threads]") {
  check_beside_a_long_one(run_family_of_threads);
}
TEST_CASE("a long operation of another communicator delays no short one", "[processes]") {
  check_beside_a_long_one(run_family_of_processes);
}
TEST_CASE("one thread, or as many as are asked for, drives the queued operations of all communicators", "[processes]") {
  const auto outcomes = run_family_of_processes(
      2, "shm", 8, [](Family& family, int, int) { return Outcome{by_as_many_threads(family)}; });
  REQUIRE(wrong_of(outcomes) == "");
}

}  // namespace tutti::internal::test
