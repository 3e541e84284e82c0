// A rank that fails in the last operation of a rank that has left, which leaves a gap in the control tree for a while:
// all waiting ranks receive the reason, over the tree or link by link.
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "faults.h"

namespace tutti::internal::test {
namespace {

constexpr int kRanks = 7;

struct Reached {
  std::atomic<int> left{0};
  std::atomic<int> failed{0};
};

void wait_for(const std::atomic<int>& count, int wanted) {
  const Deadline deadline = Deadline::after_ms(40'000);
  while (count < wanted && !deadline.passed()) sleep_ms(1);
}

enum class End { kKilled, kAborts };

// Rank 0 sends to rank 1, which ends instead, when rank 0 has left for good. Every other rank waits for the one before
// it.
std::vector<Outcome> broadcast_down_a_chain(const std::string& transports, std::size_t count, End end) {
  const SharedMemory<Reached> reached;
  return run_processes(kRanks, transports, [&](tuttiComm_t comm, int rank, int n) {
    std::vector<float> v(count, 1.0F);
    const auto broadcast = [&] { return tuttiBroadcast(v.data(), v.data(), count, tuttiFloat32, 0, comm, nullptr); };
    // When its connections exist, a rank may leave before the next has come.
    if (broadcast() != tuttiSuccess) return Outcome{std::string("the first one: ") + tuttiGetLastError(comm)};
    if (rank == 1) {
      wait_for(reached->left, 1);
      sleep_ms(200);
      if (end == End::kAborts && tuttiCommAbort(comm) == tuttiSuccess) wait_for(reached->failed, n - 2);
      ::kill(::getpid(), SIGKILL);
    }
    const tuttiResult_t result = broadcast();
    const std::string text = describe(result, comm);
    if (rank == 0) {
      const bool left = result == tuttiSuccess && tuttiCommFinalize(comm) == tuttiSuccess;
      ++reached->left;
      return Outcome{left ? "" : "rank 0 did not leave: " + text};
    }
    // Peers notice that a rank destroys its communicator, and its end.
    ++reached->failed;
    wait_for(reached->failed, n - 2);
    return Outcome{result == tuttiRemoteError || result == tuttiAborted ? "" : text};
  });
}

}  // namespace

TEST_CASE("a failure reaches every waiting rank, even with a gap in the control tree") {
  const Timeout timeout(60'000);
  ::setenv("TUTTI_ALGORITHM", "chain", 1);
  for (const char* transports : {"shm", "tcp"}) {
    for (const End end : {End::kKilled, End::kAborts}) {
      const auto outcomes = broadcast_down_a_chain(transports, 1000, end);
      for (std::size_t r = 0; r < outcomes.size(); ++r) {
        INFO(transports << (end == End::kKilled ? ", killed" : ", aborts") << ", rank " << r);
        if (r == 1) {
          CHECK(contains(outcomes[r].wrong, "wait status 9"));
        } else {
          CHECK(outcomes[r].wrong == "");
        }
      }
    }
  }
  ::unsetenv("TUTTI_ALGORITHM");
}

}  // namespace tutti::internal::test
