// Going on after a failure: what the ranks that live agree on, and communicators of them.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <random>

#include "faults.h"

namespace tutti::internal::test {
namespace {

using List = std::vector<int>;

List failed_of(tuttiComm_t comm) {
  int count = 0;
  if (tuttiCommGetFailed(comm, nullptr, 0, &count) != tuttiSuccess) return {-1};
  List list(static_cast<std::size_t>(count));
  if (tuttiCommGetFailed(comm, list.data(), count, &count) != tuttiSuccess) return {-2};
  return list;
}

std::string text_of(const List& list) {
  std::string text;
  for (const int rank : list) text += " " + std::to_string(rank);
  return text.empty() ? " none" : text;
}

tuttiResult_t shrink(tuttiComm_t comm, tuttiComm_t* smaller, List excluded = {}, int flags = TUTTI_SHRINK_DEFAULT) {
  return tuttiCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()), smaller, nullptr, flags);
}

// What is wrong with a communicator of those of the `ranks` that are not `absent`; `rank`: of the first one.
std::string try_out(tuttiComm_t comm, int rank, int ranks, const List& absent) {
  int index = 0;
  std::int64_t sum = 0;
  for (int r = 0; r < ranks; ++r) {
    if (std::find(absent.begin(), absent.end(), r) != absent.end()) continue;
    if (r < rank) ++index;
    sum += 1 + r;
  }
  int count = 0;
  int own = -1;
  if (tuttiCommCount(comm, &count) != tuttiSuccess || count != ranks - static_cast<int>(absent.size())) {
    return "the new communicator has " + std::to_string(count) + " ranks";
  }
  if (tuttiCommUserRank(comm, &own) != tuttiSuccess || own != index) return "a wrong rank";
  for (const std::size_t elements : {1, 1000, 300'000}) {
    std::vector<std::int64_t> values(elements, 1 + rank);
    const tuttiResult_t result =
        tuttiAllReduce(values.data(), values.data(), elements, tuttiInt64, tuttiSum, comm, nullptr);
    if (result != tuttiSuccess) return "on the new communicator: " + describe(result, comm);
    if (values.front() != sum || values.back() != sum) return "a wrong sum";
  }
  return {};
}

struct Loss {
  std::string transports;
  int ranks;
  List victims;  // the first dies in an operation, the others in the call of tuttiCommShrink
  unsigned seed = 0;
};

Outcome survive(tuttiComm_t comm, int rank, const Loss& loss) {
  const bool dies_late = std::find(loss.victims.begin(), loss.victims.end(), rank) != loss.victims.end();
  if (const tuttiResult_t result = reduce_until_error(comm); result != tuttiRemoteError) {
    return {"no remote error: " + describe(result, comm)};
  }
  std::mt19937 random(loss.seed * 64 + static_cast<unsigned>(rank));
  const auto us = static_cast<std::int64_t>(random() % 3000);
  std::thread assassin([&] {
    if (!dies_late) return;
    std::this_thread::sleep_for(std::chrono::microseconds(us));
    ::kill(::getpid(), SIGKILL);
  });
  const std::int64_t begin_ns = now_ns();
  tuttiComm_t smaller = nullptr;
  const tuttiResult_t result = shrink(comm, &smaller);
  const std::int64_t took_us = (now_ns() - begin_ns) / 1000;
  assassin.join();
  if (result != tuttiSuccess) return {"shrink: " + describe(result, nullptr)};
  List failed = failed_of(comm);
  if (failed != loss.victims) {
    // A rank that dies so late may be in the new communicator, which then fails.
    tuttiResult_t error = reduce_until_error(smaller);
    if (error != tuttiRemoteError) return {"failed:" + text_of(failed) + ", and then " + describe(error, smaller)};
    tuttiComm_t next = nullptr;
    error = shrink(smaller, &next);
    if (error != tuttiSuccess) return {"second shrink: " + describe(error, nullptr)};
    (void)tuttiCommDestroy(smaller);
    smaller = next;
  }
  std::string wrong = try_out(smaller, rank, loss.ranks, loss.victims);
  std::uint64_t flag = ~(std::uint64_t{1} << rank);
  std::uint64_t wanted = ~std::uint64_t{0};
  for (int r = 0; r < loss.ranks; ++r) {
    if (std::find(loss.victims.begin(), loss.victims.end(), r) == loss.victims.end())
      wanted &= ~(std::uint64_t{1} << r);
  }
  if (wrong.empty() && tuttiCommAgree(smaller, &flag) != tuttiSuccess)
    wrong = std::string("agree: ") + tuttiGetLastError(nullptr);
  if (wrong.empty() && flag != wanted) wrong = "agree has a wrong flag";
  if (wrong.empty() && !failed_of(smaller).empty()) wrong = "a rank of the new communicator counts as failed";
  if (tuttiCommDestroy(smaller) != tuttiSuccess) wrong += ", destroy fails";
  return {wrong, static_cast<std::uint64_t>(took_us)};
}

void require_survived(const Loss& loss) {
  INFO(loss.transports << ", " << loss.ranks << " ranks, victims" << text_of(loss.victims) << ", seed " << loss.seed);
  Loss sorted = loss;
  std::sort(sorted.victims.begin(), sorted.victims.end());
  const auto outcomes = run_processes(loss.ranks, loss.transports, [&](tuttiComm_t comm, int rank, int) {
    if (rank != loss.victims[0]) return survive(comm, rank, sorted);
    std::thread assassin([] {
      sleep_ms(30);
      ::kill(::getpid(), SIGKILL);
    });
    (void)reduce_until_error(comm);
    assassin.join();
    return Outcome{"the victim lives"};
  });
  std::uint64_t slowest_us = 0;
  for (int rank = 0; rank < loss.ranks; ++rank) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    INFO("rank " << rank);
    if (std::find(loss.victims.begin(), loss.victims.end(), rank) != loss.victims.end()) {
      REQUIRE(contains(outcome.wrong, "wait status 9"));
      continue;
    }
    REQUIRE(outcome.wrong == "");
    slowest_us = std::max(slowest_us, outcome.digest);
  }
  std::printf("%s, %d ranks, without%s: shrink took %llu us\n", loss.transports.c_str(), loss.ranks,
              text_of(loss.victims).c_str(), static_cast<unsigned long long>(slowest_us));
}

}  // namespace

TEST_CASE("ranks that live go on without a killed one", "[processes]") {
  for (const char* transports : {"shm", "tcp"}) {
    for (const int ranks : {2, 3, 8}) {
      require_survived({transports, ranks, {ranks - 1}});
      require_survived({transports, ranks, {0}});
    }
  }
}

TEST_CASE("ranks that die while the others go on are left out as well", "[processes]") {
  const List second = GENERATE(values<List>({{1, 2}, {0, 1}, {5, 0}, {3, 4, 0}}));
  for (unsigned seed = 1; seed <= 6; ++seed) require_survived({seed % 2 != 0 ? "shm" : "tcp", 6, second, seed});
}

TEST_CASE("excluded ranks take no part, and the communicator stays usable for all", "[threads]") {
  const bool aborts = GENERATE(false, true);
  const auto outcomes = run_threads(5, "shm", [&](tuttiComm_t comm, int rank, int ranks) {
    const List excluded = {3, 1};
    tuttiComm_t smaller = nullptr;
    std::string wrong;
    if (rank != 1 && rank != 3) {
      const tuttiResult_t result = shrink(comm, &smaller, excluded, aborts ? TUTTI_SHRINK_ABORT : TUTTI_SHRINK_DEFAULT);
      wrong = result == tuttiSuccess ? try_out(smaller, rank, ranks, excluded) : describe(result, comm);
      if (wrong.empty() && !failed_of(comm).empty()) wrong = "a rank counts as failed";
    }
    std::int32_t one = 1;
    const tuttiResult_t result = tuttiAllReduce(&one, &one, 1, tuttiInt32, tuttiSum, comm, nullptr);
    if (result != (aborts ? tuttiAborted : tuttiSuccess)) wrong += "; after it: " + describe(result, comm);
    std::uint64_t flag = ~(std::uint64_t{1} << rank);
    if (tuttiCommAgree(comm, &flag) != tuttiSuccess || flag != ~std::uint64_t{31})
      wrong += std::string("; agree: ") + tuttiGetLastError(nullptr) + ", flag " + std::to_string(flag);
    (void)tuttiCommDestroy(smaller);
    return Outcome{wrong};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("ranks go on one after the other until one is left", "[processes]") {
  const auto outcomes = run_processes(5, "shm", [](tuttiComm_t comm, int rank, int ranks) {
    tuttiComm_t now = comm;
    List absent;
    for (int victim = 0; victim < ranks - 1; ++victim) {
      // The death of a rank may fail operations that it has completed and others have not: all complete theirs first.
      std::uint64_t flag = 1;
      if (const tuttiResult_t result = tuttiCommAgree(now, &flag); result != tuttiSuccess) {
        return Outcome{"agree: " + describe(result, now)};
      }
      if (rank == victim) ::kill(::getpid(), SIGKILL);
      absent.push_back(victim);
      tuttiComm_t smaller = nullptr;
      if (const tuttiResult_t result = shrink(now, &smaller); result != tuttiSuccess) {
        return Outcome{describe(result, now)};
      }
      if (failed_of(now) != List{0}) return Outcome{"failed:" + text_of(failed_of(now))};
      if (now != comm) (void)tuttiCommDestroy(now);
      now = smaller;
      if (const std::string wrong = try_out(now, rank, ranks, absent); !wrong.empty()) return Outcome{wrong};
    }
    (void)tuttiCommDestroy(now);
    return Outcome{};
  });
  REQUIRE(outcomes[4].wrong == "");
}

TEST_CASE("a rank that leaves instead is an error on all others", "[threads]") {
  const auto outcomes = run_threads(3, "shm", [](tuttiComm_t comm, int rank, int) {
    if (rank == 1) return Outcome{tuttiCommFinalize(comm) == tuttiSuccess ? "" : "finalize fails"};
    tuttiComm_t smaller = nullptr;
    const tuttiResult_t result = shrink(comm, &smaller);
    const std::string text = describe(result, comm);
    const bool right = result == tuttiRemoteError && smaller == nullptr &&
                       contains(text, "rank 1 left the communicator and did not call tuttiCommShrink");
    return Outcome{right ? "" : text};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("ranks that make different calls get an error that names both", "[threads]") {
  const auto outcomes = run_threads(3, "shm", [](tuttiComm_t comm, int rank, int) {
    tuttiComm_t smaller = nullptr;
    std::uint64_t flag = 7;
    const tuttiResult_t result = rank == 2 ? tuttiCommAgree(comm, &flag) : shrink(comm, &smaller);
    const std::string text = describe(result, comm);
    const bool right = result == tuttiMismatch && smaller == nullptr && flag == 7 &&
                       contains(text, " has called tuttiCommShrink") &&
                       contains(text, "rank 2 has called tuttiCommAgree");
    return Outcome{right ? "" : text};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("lists that differ are a timeout on all ranks, with the calls that differ", "[threads]") {
  ::setenv("TUTTI_INIT_TIMEOUT_MS", "4000", 1);
  std::atomic<int> done{0};
  const auto outcomes = run_threads(4, "shm", [&](tuttiComm_t comm, int rank, int ranks) {
    tuttiComm_t smaller = nullptr;
    const tuttiResult_t result = rank == 3 ? tuttiTimeout : shrink(comm, &smaller, rank == 2 ? List{} : List{3});
    const std::string text = describe(result, comm);
    // A rank that leaves would be another reason.
    await_all(&done, ranks);
    if (rank == 3) return Outcome{};
    const bool right =
        result == tuttiTimeout && smaller == nullptr &&
        (rank == 2 ||
         contains(text, "rank 2 did not call tuttiCommShrink without rank 3; rank 2 has called tuttiCommShrink"));
    return Outcome{right ? "" : text};
  });
  ::unsetenv("TUTTI_INIT_TIMEOUT_MS");
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("arguments that are not valid are refused at once", "[threads]") {
  const auto outcomes = run_threads(2, "shm", [](tuttiComm_t comm, int rank, int) {
    tuttiComm_t smaller = nullptr;
    int count = 0;
    int other = 1 - rank;
    int outside = 2;
    const bool refused = shrink(comm, &smaller, {rank}) == tuttiInvalidArgument &&
                         shrink(comm, &smaller, {outside}) == tuttiInvalidArgument &&
                         shrink(comm, nullptr, {other}) == tuttiInvalidArgument &&
                         shrink(comm, &smaller, {other}, 2) == tuttiInvalidArgument &&
                         tuttiCommShrink(comm, nullptr, 1, &smaller, nullptr, 0) == tuttiInvalidArgument &&
                         tuttiCommShrink(comm, &other, -1, &smaller, nullptr, 0) == tuttiInvalidArgument &&
                         tuttiCommAgree(comm, nullptr) == tuttiInvalidArgument &&
                         tuttiCommGetFailed(comm, nullptr, 0, nullptr) == tuttiInvalidArgument &&
                         tuttiCommGetFailed(comm, nullptr, 1, &count) == tuttiInvalidArgument;
    const tuttiResult_t result = tuttiBarrier(comm, nullptr);
    if (!refused || smaller != nullptr) return Outcome{"something was not refused"};
    return Outcome{result == tuttiSuccess ? "" : describe(result, comm)};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("a communicator goes on from an operation that another thread is inside", "[threads]") {
  const auto outcomes = run_threads(3, "shm", [](tuttiComm_t comm, int rank, int ranks) {
    std::int32_t value = 1;
    tuttiResult_t ended = tuttiSuccess;
    // Rank 2 does not call it, so the others wait.
    std::thread inside([&] {
      if (rank != 2) ended = tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum, comm, nullptr);
    });
    sleep_ms(20);
    tuttiComm_t smaller = nullptr;
    const tuttiResult_t result = rank == 2 ? tuttiSuccess : shrink(comm, &smaller, {2}, TUTTI_SHRINK_ABORT);
    inside.join();
    std::string wrong = result == tuttiSuccess ? "" : describe(result, comm);
    if (rank != 2 && ended != tuttiAborted) wrong += "; the operation was not ended";
    if (rank != 2 && wrong.empty()) wrong = try_out(smaller, rank, ranks, {2});
    (void)tuttiCommDestroy(smaller);
    return Outcome{wrong};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

}  // namespace tutti::internal::test
