// Ranks that wait for each other without end, because their calls differ and no message shows it; and ranks that only
// seem to.
#include <atomic>
#include <functional>

#include "base/failure.h"
#include "faults.h"

namespace tutti::internal::test {
namespace {

using Calls = std::function<tuttiResult_t(tuttiComm_t comm, int rank)>;

struct Stall {
  const char* what;
  int odd;  // the rank that differs
  Calls calls;
};

tuttiResult_t reduce(tuttiComm_t comm, int root) {
  float v = 1;
  return tuttiReduce(&v, &v, 1, tuttiFloat32, tuttiSum, root, comm, nullptr);
}

tuttiResult_t broadcast(tuttiComm_t comm, int root) {
  float v = 1;
  return tuttiBroadcast(&v, &v, 1, tuttiFloat32, root, comm, nullptr);
}

tuttiResult_t all_reduce(tuttiComm_t comm, std::size_t count = 1) {
  std::vector<float> v(count, 1);
  return tuttiAllReduce(v.data(), v.data(), count, tuttiFloat32, tuttiSum, comm, nullptr);
}

// A rank that has completed the differing call learns of the difference in the next one.
tuttiResult_t then_barrier(tuttiResult_t first, tuttiComm_t comm) {
  return first == tuttiSuccess ? tuttiBarrier(comm, nullptr) : first;
}

std::vector<Stall> stalls() {
  return {
      {"both receive", 1, [](tuttiComm_t c, int r) { return then_barrier(reduce(c, r == 1 ? 1 : 0), c); }},
      {"both send", 1, [](tuttiComm_t c, int r) { return then_barrier(broadcast(c, r == 1 ? 1 : 0), c); }},
      {"broadcast or all-reduce", 0,
       [](tuttiComm_t c, int r) { return then_barrier(r == 0 ? broadcast(c, 1) : all_reduce(c), c); }},
      {"one call fewer", 0,
       [](tuttiComm_t c, int r) {
         const tuttiResult_t first = r == 0 ? tuttiSuccess : reduce(c, 0);
         return first == tuttiSuccess ? then_barrier(tuttiBarrier(c, nullptr), c) : first;
       }},
  };
}

void require_mismatch(const Stall& stall, RunJobKind kind, int ranks, const char* transports) {
  const auto run = kind == RunJobKind::kThreads ? run_threads : run_processes;
  const auto outcomes = run(ranks, transports, [&](tuttiComm_t comm, int rank, int) {
    const std::int64_t begin = now_ns();
    const tuttiResult_t result = stall.calls(comm, rank);
    const std::int64_t ms = (now_ns() - begin) / 1'000'000;
    const std::string text = describe(result, comm);
    if (result != tuttiMismatch) return Outcome{"no mismatch on rank " + std::to_string(rank) + ": " + text};
    if (ms > kNoticeMs + kStallMs) return Outcome{"noticed after " + std::to_string(ms) + " ms"};
    const std::string odd = "rank " + std::to_string(stall.odd) + " runs operation";
    return Outcome{contains(text, odd) && contains(text, ", rank ") ? "" : "not both are named: " + text};
  });
  INFO(stall.what << ", " << transports << ", " << ranks << " ranks");
  CHECK(wrong_of(outcomes) == "");
}

}  // namespace

TEST_CASE("ranks that wait for each other learn that their calls differ") {
  for (const Stall& stall : stalls()) {
    require_mismatch(stall, RunJobKind::kThreads, 2, "shm");
    require_mismatch(stall, RunJobKind::kThreads, 4, "tcp");
    require_mismatch(stall, RunJobKind::kProcesses, 3, "shm");
  }
}

TEST_CASE("a rank that comes late to the right call is not a mismatch") {
  for (const auto run : {run_threads, run_processes}) {
    const auto outcomes = run(3, "shm,tcp", [](tuttiComm_t comm, int rank, int) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{100'000}}) {
        if (rank == 2) sleep_ms(3000);
        const tuttiResult_t result = all_reduce(comm, count);
        if (result != tuttiSuccess) return Outcome{describe(result, comm)};
      }
      return Outcome{};
    });
    CHECK(wrong_of(outcomes) == "");
  }
}

TEST_CASE("ranks that wait in different calls for the same late rank do not differ") {
  for (const char* transports : {"shm", "tcp"}) {
    const auto outcomes = run_threads(3, transports, [](tuttiComm_t comm, int rank, int) {
      // Rank 1 sends to rank 0 and continues; rank 0 waits in the call before.
      if (rank == 2) sleep_ms(2500);
      const tuttiResult_t result = then_barrier(reduce(comm, 0), comm);
      return Outcome{result == tuttiSuccess ? "" : describe(result, comm)};
    });
    CHECK(wrong_of(outcomes) == "");
  }
}

TEST_CASE("a timeout names the operation and the rank that it waited for") {
  const Timeout timeout(300);
  for (const char* transports : {"shm", "tcp", "sim:5"}) {
    std::atomic<int> over{0};
    const auto outcomes = run_threads(2, transports, [&](tuttiComm_t comm, int rank, int) {
      if (rank == 1) {
        await_count(over, 1);
        return Outcome{};
      }
      const tuttiResult_t result = all_reduce(comm, 4);
      over = 1;
      const std::string text = describe(result, comm);
      const bool complete = contains(text, "all_reduce(count 4") && contains(text, "rank 1");
      return Outcome{result == tuttiTimeout && complete ? "" : text};
    });
    INFO(transports);
    CHECK(wrong_of(outcomes) == "");
  }
}

TEST_CASE("all peers of a rank that aborts during operations get that error") {
  for (const char* transports : {"shm", "tcp"}) {
    for (int round = 0; round < 5; ++round) {
      ::setenv("TUTTI_TRANSPORTS", transports, 1);
      std::vector<tuttiComm_t> comms(4, nullptr);
      REQUIRE(tuttiCommInitAll(comms.data(), 4, nullptr) == tuttiSuccess);
      std::vector<std::string> wrong(comms.size());
      std::vector<std::thread> ranks;
      for (std::size_t r = 0; r < comms.size(); ++r) {
        ranks.emplace_back([&, r] {
          const Deadline deadline = Deadline::after_ms(20'000);
          tuttiResult_t result = tuttiSuccess;
          for (int i = 0; result == tuttiSuccess && !deadline.passed(); ++i) {
            if (r == 2 && i == 50) {
              if (tuttiCommAbort(comms[r]) != tuttiSuccess) wrong[r] = "abort failed";
              return;
            }
            result = all_reduce(comms[r], 1000);
          }
          const std::string text = describe(result, comms[r]);
          if (result != tuttiAborted || !contains(text, "rank 2")) wrong[r] = text;
          if (tuttiCommDestroy(comms[r]) != tuttiSuccess) wrong[r] = "destroy failed";
        });
      }
      for (std::thread& t : ranks) t.join();
      INFO(transports << ", round " << round);
      for (const std::string& w : wrong) CHECK(w == "");
    }
  }
}

TEST_CASE("abort does not wait for another communicator's operation in the same stream") {
  ::setenv("TUTTI_TRANSPORTS", "shm", 1);
  std::vector<tuttiComm_t> slow(2, nullptr);
  std::vector<tuttiComm_t> fast(2, nullptr);
  REQUIRE(tuttiCommInitAll(slow.data(), 2, nullptr) == tuttiSuccess);
  REQUIRE(tuttiCommInitAll(fast.data(), 2, nullptr) == tuttiSuccess);
  tuttiStream_t stream = nullptr;
  REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
  std::vector<float> v(10, 1);
  for (const tuttiComm_t comm : {slow[0], fast[0]}) {
    REQUIRE(tuttiAllReduce(v.data(), v.data(), v.size(), tuttiFloat32, tuttiSum, comm, stream) == tuttiSuccess);
  }
  sleep_ms(50);
  const std::int64_t begin = now_ns();
  REQUIRE(tuttiCommAbort(fast[0]) == tuttiSuccess);
  CHECK((now_ns() - begin) / 1'000'000 < kNoticeMs);
  // The stream still has the other operation, which uses its buffers.
  CHECK(tuttiStreamQuery(stream) == tuttiInProgress);
  REQUIRE(tuttiCommAbort(slow[0]) == tuttiSuccess);
  REQUIRE(tuttiStreamSynchronize(stream) == tuttiAborted);
  REQUIRE(tuttiStreamDestroy(stream) == tuttiSuccess);
  CHECK(all_reduce(fast[1]) == tuttiAborted);
  REQUIRE(tuttiCommDestroy(fast[1]) == tuttiSuccess);
  REQUIRE(tuttiCommDestroy(slow[1]) == tuttiSuccess);
}

TEST_CASE("finalizing after queued operations have failed says why") {
  const auto outcomes = run_threads(2, "shm", [](tuttiComm_t comm, int rank, int) {
    tuttiStream_t stream = nullptr;
    if (tuttiStreamCreate(&stream) != tuttiSuccess) return Outcome{"no stream"};
    std::vector<float> v(100, 1);
    for (int i = 0; i < 3; ++i) {
      const std::size_t count = rank == 0 ? 100 : 99;
      (void)tuttiAllReduce(v.data(), v.data(), count, tuttiFloat32, tuttiSum, comm, stream);
    }
    const tuttiResult_t finalized = tuttiCommFinalize(comm);
    (void)tuttiStreamDestroy(stream);
    return Outcome{finalized == tuttiMismatch ? "" : describe(finalized, comm)};
  });
  CHECK(wrong_of(outcomes) == "");
}

}  // namespace tutti::internal::test
