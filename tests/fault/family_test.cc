// Communicators that are split off each other fail independently; a failure during a split ends it on all ranks.
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <thread>

#include "collectives/splits.h"
#include "faults.h"

namespace tutti::internal::test {
namespace {

using RunJob = std::vector<Outcome> (*)(int ranks, const std::string& transports, const Body& body);

std::string expect(tuttiResult_t result, tuttiResult_t expected, tuttiComm_t comm, const std::string& part) {
  const std::string text = describe(result, comm);
  if (result == expected && contains(text, part)) return {};
  return "expected " + std::string(tuttiGetErrorString(expected)) + " with \"" + part + "\": " + text;
}

tuttiResult_t reduce(tuttiComm_t comm) {
  float v = 1;
  return tuttiAllReduce(&v, &v, 1, tuttiFloat32, tuttiSum, comm, nullptr);
}

Colors lower_and_upper(int ranks) {
  Colors asked = all_alike(ranks);
  for (int r = ranks / 2; r < ranks; ++r) asked.colors[static_cast<std::size_t>(r)] = 1;
  return asked;
}

// A split is an operation like any other.
void check_mismatch(RunJob run, const std::string& transports) {
  enum class Instead { kAllReduce, kAllGather, kBarrier };
  for (const Instead instead : {Instead::kAllReduce, Instead::kAllGather, Instead::kBarrier}) {
    for (const int splits : {0, 2}) {
      const auto outcomes = run(3, transports, [&](tuttiComm_t comm, int rank, int) {
        std::array<std::uint64_t, 9> all{};
        std::array<std::uint64_t, 3> own{};
        tuttiComm_t made = nullptr;
        tuttiResult_t result = tuttiSuccess;
        if (rank == splits) {
          result = tuttiCommSplit(comm, 0, 0, &made, nullptr);
        } else if (instead == Instead::kAllGather) {
          result = tuttiAllGather(own.data(), all.data(), own.size(), tuttiUint64, comm, nullptr);
        } else {
          result = instead == Instead::kBarrier ? tuttiBarrier(comm, nullptr) : reduce(comm);
        }
        if (result == tuttiSuccess) result = reduce(comm);
        if (made != nullptr) return Outcome{"a communicator was made"};
        return Outcome{expect(result, tuttiMismatch, comm, "operation 1, split")};
      });
      INFO(transports << ", rank " << splits << " splits, the others " << static_cast<int>(instead));
      CHECK(wrong_of(outcomes) == "");
    }
  }
}

// The failure of one communicator does not affect the other.
void check_abort(RunJob run, const std::string& transports) {
  for (const bool of_parent : {false, true}) {
    const auto outcomes = run(4, transports, [&](tuttiComm_t comm, int rank, int n) {
      Split half;
      Split same;
      if (std::string wrong = split_as(whole(comm, rank, n), lower_and_upper(n), &half); !wrong.empty())
        return Outcome{wrong};
      if (std::string wrong = split_as(whole(comm, rank, n), all_alike(n), &same); !wrong.empty())
        return Outcome{wrong};
      const Split& victim = of_parent ? same : half;
      const Split& other = of_parent ? half : same;
      Split below;
      if (std::string wrong = split_as(victim, all_alike(victim.ranks()), &below); !wrong.empty())
        return Outcome{wrong};
      std::string wrong;
      if (victim.rank == 0) {
        if (tuttiCommAbort(victim.comm) != tuttiSuccess) wrong = tuttiGetLastError(nullptr);
      } else {
        wrong = expect(reduce_until_error(victim.comm), tuttiAborted, victim.comm, "rank 0: aborted");
        tuttiComm_t made = nullptr;
        if (wrong.empty())
          wrong =
              expect(tuttiCommSplit(victim.comm, 0, 0, &made, nullptr), tuttiAborted, victim.comm, "rank 0: aborted");
        if (tuttiCommDestroy(victim.comm) != tuttiSuccess) wrong += "destroy failed";
      }
      for (int i = 0; i < 3 && wrong.empty(); ++i) wrong = check_members(below);
      for (int i = 0; i < 3 && wrong.empty(); ++i) wrong = check_members(other);
      if (wrong.empty()) wrong = check_members(whole(comm, rank, n));
      for (const Split* split : std::initializer_list<const Split*>{&below, &other}) {
        if (tuttiCommDestroy(split->comm) != tuttiSuccess && wrong.empty()) wrong = tuttiGetLastError(nullptr);
      }
      return Outcome{wrong};
    });
    INFO(transports << (of_parent ? ", the one that was split" : ", the one that was split off"));
    CHECK(wrong_of(outcomes) == "");
  }
}

// Of ranks 0 to 3 the last one dies: the lower half continues with its communicator.
Outcome survive(const Split& all, const Split& half) {
  std::string wrong = expect(reduce_until_error(all.comm), tuttiRemoteError, all.comm, "rank 3");
  if (wrong.empty() && all.rank == 2) {
    wrong = expect(reduce_until_error(half.comm), tuttiRemoteError, half.comm, "rank 1");
    tuttiCommAbort(half.comm);
    return Outcome{wrong};
  }
  for (int i = 0; i < 1000 && wrong.empty(); ++i) wrong = check_members(half);
  Split below;
  if (wrong.empty()) wrong = split_as(half, all_alike(half.ranks()), &below);
  if (wrong.empty() && tuttiCommDestroy(below.comm) != tuttiSuccess) wrong = tuttiGetLastError(nullptr);
  if (tuttiCommDestroy(half.comm) != tuttiSuccess && wrong.empty()) wrong = tuttiGetLastError(nullptr);
  return Outcome{wrong};
}

}  // namespace

TEST_CASE("threads: a split meets another call", "[threads]") {
  for (const char* transports : {"shm", "tcp"}) check_mismatch(run_threads, transports);
}
TEST_CASE("processes: a split meets another call", "[processes]") {
  for (const char* transports : {"shm", "tcp"}) check_mismatch(run_processes, transports);
}

TEST_CASE("threads: an aborted communicator leaves its family alone", "[threads]") {
  for (const char* transports : {"shm", "tcp"}) check_abort(run_threads, transports);
}
TEST_CASE("processes: an aborted communicator leaves its family alone", "[processes]") {
  for (const char* transports : {"shm", "tcp"}) check_abort(run_processes, transports);
}

TEST_CASE("a dead rank fails the communicators that it is in", "[processes]") {
  for (const char* transports : {"shm", "tcp"}) {
    for (const bool before_first : {false, true}) {
      const SharedMemory<std::atomic<int>> have_split;
      const auto outcomes = run_processes(4, transports, [&](tuttiComm_t comm, int rank, int n) {
        const Split all = whole(comm, rank, n);
        Split half;
        half.comm = nullptr;
        if (before_first) {
          const int color = rank < 2 ? 0 : 1;
          if (tuttiCommSplit(comm, color, 0, &half.comm, nullptr) != tuttiSuccess)
            return Outcome{tuttiGetLastError(comm)};
          half.members = rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
          half.rank = rank % 2;
        } else if (std::string wrong = split_as(all, lower_and_upper(n), &half); !wrong.empty()) {
          return Outcome{wrong};
        }
        // No operation of `comm`: the death may come before its first one.
        await_all(have_split.get(), n);
        if (rank == 3) ::kill(::getpid(), SIGKILL);
        return survive(all, half);
      });
      INFO(transports << (before_first ? ", before the first operation" : ""));
      for (const std::size_t r : {0U, 1U, 2U}) CHECK(outcomes[r].wrong == "");
      CHECK(contains(outcomes[3].wrong, "wait status 9"));
    }
  }
}

TEST_CASE("a rank that dies in a split ends it on all others", "[processes]") {
  for (int round = 0; round < 8; ++round) {
    const auto outcomes = run_processes(4, round % 2 == 0 ? "shm" : "tcp", [&](tuttiComm_t comm, int rank, int n) {
      std::thread assassin;
      if (rank == 1) {
        assassin = std::thread([&] {
          ::usleep(static_cast<useconds_t>(20'000 + 3'700 * round));
          ::kill(::getpid(), SIGKILL);
        });
      }
      const Deadline deadline = Deadline::after_ms(60'000);
      tuttiResult_t result = tuttiSuccess;
      while (result == tuttiSuccess && !deadline.passed()) {
        tuttiComm_t made = nullptr;
        result = tuttiCommSplit(comm, 0, n - rank, &made, nullptr);
        if (made != nullptr && round % 4 < 2) (void)reduce(made);
        if (made != nullptr) tuttiCommDestroy(made);
      }
      if (assassin.joinable()) assassin.join();
      return Outcome{expect(result, tuttiRemoteError, comm, "rank 1")};
    });
    INFO("round " << round);
    for (const std::size_t r : {0U, 2U, 3U}) CHECK(outcomes[r].wrong == "");
  }
}

}  // namespace tutti::internal::test
