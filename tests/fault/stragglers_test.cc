// Survivor mode with a limit for late ranks.
#include <unistd.h>

#include <csignal>
#include <random>

#include "survivors.h"

namespace tutti::internal::test {
namespace {

bool was_late(tuttiResult_t result) {
  return result == tuttiTimeout && contains(tuttiGetLastError(nullptr), "this rank was late");
}

tuttiResult_t sum_up(tuttiComm_t comm, int rank, std::int64_t* sum) {
  *sum = std::int64_t{1} << rank;
  return tuttiAllReduce(sum, sum, 1, tuttiInt64, tuttiSum, comm, nullptr);
}

}  // namespace

TEST_CASE("a late rank is left out, and takes part again after its next call", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const Variable limit("TUTTI_STRAGGLER_MS", "800");
  const int late = GENERATE(2, 0);
  const std::string transports = GENERATE("shm", "tcp");
  INFO("rank " << late << " is late, " << transports);
  StandardError log;
  constexpr int kCalls = 8000;
  constexpr int kLateCall = 20;
  // The ranks on time wait 1 ms before some calls, so that they have calls left when the late rank is back.
  const auto outcomes = run_processes(4, transports, [&](tuttiComm_t comm, int rank, int) {
    std::vector<std::uint64_t> sets(kCalls);
    int missed = 0;
    int number = 0;
    std::uint64_t digest = 0;
    for (; number < kCalls; ++number) {
      if (rank == late && number == kLateCall) sleep_ms(2500);
      std::int64_t sum = (number + 1) << rank;
      if (missed == 0 || number % 8 == 0) sleep_ms(1);
      const tuttiResult_t result = tuttiAllReduce(&sum, &sum, 1, tuttiInt64, tuttiSum, comm, nullptr);
      if (result == tuttiTimeout && rank == late && contains(tuttiGetLastError(nullptr), "this rank was late")) {
        if (sum != (number + 1) << rank) return Outcome{"a late call has written"};
        ++missed;
        continue;
      }
      if (result != tuttiSuccess) {
        return Outcome{"call " + std::to_string(number) + ": " + tuttiGetLastError(nullptr)};
      }
      const std::uint64_t set = contributors_of(comm);
      if (sum != static_cast<std::int64_t>(set) * (number + 1)) return Outcome{"a wrong sum"};
      if (!is_in(set, rank)) return Outcome{"a rank that has a result does not contribute"};
      const bool all = set == 15;
      if (number < kLateCall && !all) return Outcome{"not all contribute before one is late"};
      if (rank != late && !all) ++missed;
      // All are together again in the same call, and stay together.
      if (missed > 0 && all && digest == 0) digest = static_cast<std::uint64_t>(number);
      if (digest != 0 && !all) return Outcome{"the late rank is left out again"};
      if (digest != 0 && number > static_cast<int>(digest) + 50) break;
    }
    if (missed == 0) return Outcome{"the late rank was not left out"};
    if (digest == 0) return Outcome{"the late rank did not come back"};
    return Outcome{"", digest};
  });
  REQUIRE(wrong_of(outcomes) == "");
  REQUIRE(same_digests(outcomes));
  REQUIRE(contains(log.take(), "rank " + std::to_string(late) + " late by 800 ms: collectives go on without"));
}

TEST_CASE("a late rank does not wait long for another one that is late, and a split is refused", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const Timeout timeout(2000);
  const Variable limit("TUTTI_STRAGGLER_MS", "200");
  const std::string transports = GENERATE("shm", "tcp");
  const SharedMemory<std::atomic<int>> first_is_back;
  const StandardError silence;
  const auto outcomes = run_processes(4, transports, [&](tuttiComm_t comm, int rank, int) {
    tuttiComm_t none = nullptr;
    if (tuttiCommSplit(comm, 0, 0, &none, nullptr) != tuttiInvalidUsage) return Outcome{"a split is not refused"};
    std::uint64_t without_last = 0;
    for (int number = 0; number < 20'000; ++number) {
      if (rank == 2 && number == 20) sleep_ms(1500);
      while (rank == 3 && number == 20 && *first_is_back.get() == 0) sleep_ms(1);
      if (rank < 2) sleep_ms(1);
      std::int64_t sum = 1 << rank;
      const tuttiResult_t result = tuttiAllReduce(&sum, &sum, 1, tuttiInt64, tuttiSum, comm, nullptr);
      if (was_late(result)) continue;
      if (result != tuttiSuccess) return Outcome{std::to_string(number) + ": " + tuttiGetLastError(nullptr)};
      if (sum == 7) {
        without_last = 1;
        *first_is_back.get() = 1;
      }
      if (*first_is_back.get() != 0 && sum == 15)
        return Outcome{"", 2 * static_cast<std::uint64_t>(number) + without_last};
    }
    return Outcome{"the ranks do not come together"};
  });
  REQUIRE(wrong_of(outcomes) == "");
  // All end in the same call, and all but the last have completed one without it.
  for (const int rank : {0, 1, 2}) REQUIRE(outcomes[static_cast<std::size_t>(rank)].digest == outcomes[3].digest + 1);
}

TEST_CASE("a late rank that leaves does not keep another late rank out", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const Variable limit("TUTTI_STRAGGLER_MS", "400");
  const std::string transports = GENERATE("shm", "tcp");
  const SharedMemory<std::atomic<int>> both_are_out;
  const StandardError silence;
  const auto outcomes = run_processes(4, transports, [&](tuttiComm_t comm, int rank, int) {
    constexpr int kLateCall = 20;
    for (int number = 0; number < 20'000; ++number) {
      while (rank >= 2 && number == kLateCall && *both_are_out.get() == 0) sleep_ms(1);
      if (rank == 3 && number == kLateCall) return Outcome{};  // and leaves
      if (rank < 2) sleep_ms(1);
      std::int64_t sum = 0;
      const tuttiResult_t result = sum_up(comm, rank, &sum);
      if (was_late(result)) continue;
      if (result != tuttiSuccess) return Outcome{std::to_string(number) + ": " + tuttiGetLastError(nullptr)};
      if (sum == 3) *both_are_out.get() = 1;
      if (*both_are_out.get() == 0 || sum != 7) continue;
      for (int waited_ms = 0; waited_ms < 20'000; ++waited_ms) {
        if (tuttiSend(&sum, 1, tuttiInt64, 3, comm, nullptr) != tuttiRemoteError) return Outcome{"it is sent to"};
        if (contains(tuttiGetLastError(nullptr), "rank 3 has left"))
          return Outcome{"", static_cast<std::uint64_t>(number)};
        sleep_ms(1);
      }
      return Outcome{tuttiGetLastError(nullptr)};
    }
    return Outcome{"rank 2 does not come back"};
  });
  REQUIRE(wrong_of(outcomes) == "");
  REQUIRE(outcomes[0].digest == outcomes[1].digest);
  REQUIRE(outcomes[0].digest == outcomes[2].digest);
}

TEST_CASE("a late rank that gives up while the others take it back does not fail them", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const Variable limit("TUTTI_STRAGGLER_MS", "400");
  const Timeout timeout(4000);
  const std::string transports = GENERATE("shm", "tcp");
  const SharedMemory<std::atomic<std::int64_t>> back_ns;
  const StandardError silence;
  const auto outcomes = run_processes(3, transports, [&](tuttiComm_t comm, int rank, int) {
    std::int64_t sum = 0;
    if (rank == 2) {
      sleep_ms(3000);
      const tuttiResult_t late = sum_up(comm, rank, &sum);
      if (!was_late(late)) return Outcome{describe(late, comm)};
      *back_ns.get() = now_ns();
      for (int number = 0; number < 3; ++number) {
        const tuttiResult_t result = sum_up(comm, rank, &sum);
        if (result == tuttiSuccess || was_late(result)) continue;  // on a busy machine it may be back in time
        return Outcome{result == tuttiTimeout ? "" : describe(result, comm)};
      }
      return Outcome{};
    }
    if (sum_up(comm, rank, &sum) != tuttiSuccess || sum != 3) return Outcome{tuttiGetLastError(nullptr)};
    while (*back_ns.get() == 0) sleep_ms(1);
    // One calls before the late rank gives up, and the other one after it.
    const std::int64_t call_ns = *back_ns.get() + (rank == 0 ? 3'900 : 4'100) * std::int64_t{1'000'000};
    while (now_ns() < call_ns) sleep_ms(1);
    for (int number = 0; number < 3; ++number) {
      if (sum_up(comm, rank, &sum) != tuttiSuccess) return Outcome{tuttiGetLastError(nullptr)};
      if (sum != 3 && sum != 7) return Outcome{"a wrong sum"};
    }
    return Outcome{"", static_cast<std::uint64_t>(sum)};
  });
  REQUIRE(wrong_of(outcomes) == "");
  REQUIRE(outcomes[0].digest == outcomes[1].digest);
}

TEST_CASE("a late rank comes back although its parent in the control tree has died with its notice", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const Variable limit("TUTTI_STRAGGLER_MS", "200");
  constexpr int kParent = 1;
  constexpr int kChild = 5;  // of that one in the control tree
  constexpr std::uint64_t kLiving = 61;
  struct Shared {
    std::atomic<int> parent{0};
    std::atomic<int> child_calls_again{0};
  };
  const SharedMemory<Shared> shared;
  const StandardError silence;
  const auto outcomes = run_processes(6, "tcp", [&](tuttiComm_t comm, int rank, int) {
    if (rank == kParent) shared->parent = ::getpid();
    std::thread killer([&] {
      if (rank != 0) return;
      while (shared->parent == 0) sleep_ms(1);
      sleep_ms(50);
      ::kill(shared->parent, SIGSTOP);  // it forwards nothing now
      while (shared->child_calls_again == 0) sleep_ms(1);
      sleep_ms(300);
      ::kill(shared->parent, SIGKILL);
    });
    Outcome outcome{"the ranks do not come together"};
    for (int number = 0; number < 20'000; ++number) {
      if (rank != kChild && shared->child_calls_again != 0) sleep_ms(1);
      std::int64_t sum = 0;
      const tuttiResult_t result = sum_up(comm, rank, &sum);
      if (was_late(result)) {  // on a busy machine perhaps also other ranks
        if (rank == kChild) shared->child_calls_again = 1;
        continue;
      }
      if (result != tuttiSuccess) {
        outcome.wrong = std::to_string(number) + ": " + tuttiGetLastError(nullptr);
        break;
      }
      if (shared->child_calls_again != 0 && sum == kLiving) {
        outcome = {"", static_cast<std::uint64_t>(number)};
        break;
      }
    }
    shared->child_calls_again = 1;
    killer.join();
    return outcome;
  });
  INFO(wrong_of(outcomes));
  for (const int rank : {0, 2, 3, 4, 5}) {
    INFO("rank " << rank);
    REQUIRE(outcomes[static_cast<std::size_t>(rank)].wrong == "");
    REQUIRE(outcomes[static_cast<std::size_t>(rank)].digest == outcomes[0].digest);
  }
}

TEST_CASE("different calls are a mismatch, not lateness, for any limit for late ranks", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  for (const char* limit_ms : {"200", "400", "3000"}) {
    const Variable limit("TUTTI_STRAGGLER_MS", limit_ms);
    for (const char* transports : {"shm", "tcp"}) {
      // The root of a broadcast may complete it although the others call something else.
      for (const int differs : {0, 2}) {
        INFO(limit_ms << " ms, " << transports << ", rank " << differs);
        const auto outcomes = run_processes(3, transports, [&](tuttiComm_t comm, int rank, int) {
          std::int64_t sum = 0;
          if (sum_up(comm, rank, &sum) != tuttiSuccess) return Outcome{tuttiGetLastError(nullptr)};
          const tuttiResult_t result =
              rank == differs ? tuttiBcast(&sum, 1, tuttiInt64, differs, comm, nullptr) : sum_up(comm, rank, &sum);
          const std::string text = describe(result, comm);
          return Outcome{result == tuttiMismatch && contains(text, "all_reduce") && contains(text, "broadcast") ? ""
                                                                                                                : text};
        });
        REQUIRE(wrong_of(outcomes) == "");
      }
      // Each waits for the other one's data, so no rank sees a difference.
      const auto outcomes = run_processes(2, transports, [&](tuttiComm_t comm, int rank, int) {
        std::int64_t value = 0;
        const tuttiResult_t result = tuttiBcast(&value, 1, tuttiInt64, 1 - rank, comm, nullptr);
        const std::string text = describe(result, comm);
        return Outcome{result == tuttiMismatch && contains(text, "root 0") && contains(text, "root 1") ? "" : text};
      });
      REQUIRE(wrong_of(outcomes) == "");
    }
  }
}

TEST_CASE("whatever ranks are late or die, those that complete a call have the same contributors", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  constexpr int kRanks = 5;
  constexpr int kEnough = 200;  // calls; then until all that live contribute
  constexpr int kMost = 2000;   // on a busy machine ranks may be late often
  using LongLog = std::array<std::array<std::atomic<std::uint64_t>, kMostRanks>, kMost>;
  const Variable limit("TUTTI_STRAGGLER_MS", "150");
  for (unsigned seed = 1; seed <= 4; ++seed) {
    const int victim = static_cast<int>(seed) % kRanks;
    const std::uint64_t living = 31 & ~(std::uint64_t{1} << victim);
    const StandardError silence;
    const SharedMemory<LongLog> log;
    const auto outcomes = run_processes(kRanks, seed % 2 != 0 ? "shm" : "tcp", [&](tuttiComm_t comm, int rank, int) {
      std::mt19937 random(seed * 64 + static_cast<unsigned>(rank));
      const int sleeps_at = static_cast<int>(random() % 100);
      const int dies_at = 20 + static_cast<int>(random() % 100);
      bool was_on_time = true;
      for (int number = 0; number < kMost; ++number) {
        if (rank == victim && number == dies_at) ::kill(::getpid(), SIGKILL);
        if (was_on_time || number == sleeps_at) sleep_ms(number == sleeps_at ? 1500 : 2);
        std::int64_t sum = (number + 1) << rank;
        const tuttiResult_t result = tuttiAllReduce(&sum, &sum, 1, tuttiInt64, tuttiSum, comm, nullptr);
        was_on_time = !was_late(result);
        if (!was_on_time) continue;
        if (result != tuttiSuccess) return Outcome{std::to_string(number) + ": " + tuttiGetLastError(nullptr)};
        const std::uint64_t set = contributors_of(comm);
        if (sum != static_cast<std::int64_t>(set) * (number + 1) || !is_in(set, rank)) return Outcome{"a wrong sum"};
        (*log.get())[static_cast<std::size_t>(number)][static_cast<std::size_t>(rank)] = set;
        if (number >= kEnough && set == living) return Outcome{};
      }
      return Outcome{"the ranks do not come together"};
    });
    INFO("seed " << seed);
    for (int rank = 0; rank < kRanks; ++rank) {
      INFO("rank " << rank);
      if (rank != victim) REQUIRE(outcomes[static_cast<std::size_t>(rank)].wrong == "");
    }
    for (const auto& sets : *log.get()) {
      std::uint64_t common = 0;
      for (const auto& set : sets) {
        if (common == 0) common = set;
        REQUIRE((set == 0 || set == common));
      }
      for (int rank = 0; rank < kRanks; ++rank) {
        if (rank != victim) REQUIRE(is_in(common, rank) == (sets[static_cast<std::size_t>(rank)] != 0));
      }
    }
  }
}

}  // namespace tutti::internal::test
