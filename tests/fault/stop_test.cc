// A process that is stopped, as by a debugger or a job manager: the others wait for it, but not once the communicator
// has failed.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>

#include "faults.h"

namespace tutti::internal::test {
namespace {

// Shared by all processes of a job.
struct InProcessControl {
  std::atomic<int> stopping{0};  // the process that stops itself
  std::atomic<std::int64_t> failed_at{0};
};

using Shared = SharedMemory<InProcessControl>;

// Rank 0 receives from both others, from rank 1 first.
tuttiResult_t reduce(tuttiComm_t comm) {
  float v = 1;
  return tuttiReduce(&v, &v, 1, tuttiFloat32, tuttiSum, 0, comm, nullptr);
}

// Connects, if `warm`, and is then stopped until rank 0 wakes it.
Outcome stopped_rank(tuttiComm_t comm, Shared& shared, bool warm, tuttiResult_t wanted) {
  if (warm && tuttiBarrier(comm, nullptr) != tuttiSuccess) return Outcome{tuttiGetLastError(comm)};
  shared->stopping = ::getpid();
  ::raise(SIGSTOP);
  tuttiResult_t late = reduce(comm);
  for (int i = 0; i < 500 && late == tuttiSuccess; ++i, sleep_ms(10)) late = tuttiBarrier(comm, nullptr);
  return Outcome{late == wanted ? "" : "the stopped rank got " + describe(late, comm)};
}

// Whether rank 1 has stopped, or nearly.
bool wait_for_stop(Shared& shared) {
  const Deadline deadline = Deadline::after_ms(60'000);
  while (shared->stopping == 0 && !deadline.passed()) sleep_ms(5);
  return shared->stopping != 0;
}

// The result of rank 0, and its time; wakes rank 1.
std::string judge(Shared& shared, tuttiResult_t result, tuttiResult_t wanted, const std::string& text) {
  const std::int64_t ms = (now_ns() - shared->failed_at) / 1'000'000;
  ::kill(shared->stopping, SIGCONT);
  if (result != wanted) return "rank 0 got " + text;
  if (shared->failed_at == 0) return "rank 0 did not wait";
  return ms < kNoticeMs ? "" : "noticed after " + std::to_string(ms) + " ms";
}

}  // namespace

TEST_CASE("the death of a third rank ends the wait for a stopped one") {
  for (const char* transports : {"shm", "tcp"}) {
    for (const bool warm : {false, true}) {
      Shared shared;
      const auto outcomes = run_processes(3, transports, [&](tuttiComm_t comm, int rank, int) {
        if (rank == 1) return stopped_rank(comm, shared, warm, tuttiRemoteError);
        if (warm && tuttiBarrier(comm, nullptr) != tuttiSuccess) return Outcome{tuttiGetLastError(comm)};
        if (!wait_for_stop(shared)) return Outcome{"rank 1 does not stop"};
        if (rank == 2) {
          sleep_ms(500);
          shared->failed_at = now_ns();
          ::kill(::getpid(), SIGKILL);
        }
        const tuttiResult_t result = reduce(comm);
        const std::string text = describe(result, comm);
        const std::string wrong = judge(shared, result, tuttiRemoteError, text);
        return Outcome{wrong.empty() && !contains(text, "rank 2") ? "rank 2 is not named: " + text : wrong};
      });
      INFO(transports << (warm ? ", connected" : ", connecting"));
      CHECK(outcomes[0].wrong == "");
      CHECK(outcomes[1].wrong == "");
      CHECK(contains(outcomes[2].wrong, "wait status 9"));
    }
  }
}

TEST_CASE("abort ends the wait for a stopped rank") {
  for (const char* transports : {"shm", "tcp"}) {
    for (const bool warm : {false, true}) {
      Shared shared;
      const auto outcomes = run_processes(3, transports, [&](tuttiComm_t comm, int rank, int) {
        if (rank == 1) return stopped_rank(comm, shared, warm, tuttiAborted);
        if (warm && tuttiBarrier(comm, nullptr) != tuttiSuccess) return Outcome{tuttiGetLastError(comm)};
        if (!wait_for_stop(shared)) return Outcome{"rank 1 does not stop"};
        if (rank == 2) {
          tuttiResult_t result = reduce(comm);
          if (result == tuttiSuccess) result = tuttiBarrier(comm, nullptr);
          return Outcome{result == tuttiAborted ? "" : describe(result, comm)};
        }
        tuttiResult_t result = tuttiSuccess;
        std::string text;
        std::thread caller([&] {
          result = reduce(comm);
          text = describe(result, nullptr);
        });
        sleep_ms(500);
        shared->failed_at = now_ns();
        const tuttiResult_t aborted = tuttiCommAbort(comm);
        caller.join();
        const std::string wrong = judge(shared, result, tuttiAborted, text);
        if (!wrong.empty()) std::fprintf(stderr, "%s\n", wrong.c_str());
        // The abort has freed the communicator, which the job would destroy.
        ::_exit(wrong.empty() && aborted == tuttiSuccess ? 0 : 1);
      });
      INFO(transports << (warm ? ", connected" : ", connecting"));
      CHECK(outcomes[0].wrong == "the process ended with wait status 0");
      CHECK(outcomes[1].wrong == "");
      CHECK(outcomes[2].wrong == "");
    }
  }
}

}  // namespace tutti::internal::test
