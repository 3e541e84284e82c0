// Operations that time out because one rank is stopped, or late: every rank's error names that rank and no other,
// whichever ranks wait for each other inside the collective.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <random>

#include "faults.h"

namespace tutti::internal::test {
namespace {

constexpr int kTimeoutMs = 4000;

// Shared by all processes of a job.
struct InProcessControl {
  std::atomic<int> done{0};
  std::atomic<int> victim{0};  // its process
};

using Shared = SharedMemory<InProcessControl>;

struct Case {
  int ranks;
  int victim;
  const char* transports;
  unsigned seed;
};

// The same on every rank: one of the collectives with a random size, and a root if it has one.
class Calls {
 public:
  explicit Calls(const Case& c) : ranks_(c.ranks), random_(c.seed), data_(std::size_t{1} << 16, 1) {}
  tuttiResult_t next(tuttiComm_t comm) {
    const int which = pick(5);
    const int root = pick(ranks_);
    const std::size_t count = std::size_t{1} << pick(13);
    float* const v = data_.data();
    float* const w = v + (std::size_t{1} << 15);
    if (which == 0) return tuttiAllReduce(v, v, count, tuttiFloat32, tuttiMax, comm, nullptr);
    if (which == 1) return tuttiBroadcast(v, v, count, tuttiFloat32, root, comm, nullptr);
    if (which == 2) return tuttiReduce(v, v, count, tuttiFloat32, tuttiMax, root, comm, nullptr);
    if (which == 3) return tuttiAllGather(v, w, count / 8, tuttiFloat32, comm, nullptr);
    return tuttiBarrier(comm, nullptr);
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  const int ranks_;
  std::mt19937 random_;
  std::vector<float> data_;
};

// Empty if the error names exactly the victim, with `why`.
std::string judge(const Case& c, int rank, tuttiResult_t result, const std::string& text, const char* why) {
  const std::string named = "rank " + std::to_string(c.victim) + " (host ";
  const bool right = contains(text, named) && contains(text, why);
  const bool only = occurrences(text, " (host ") == 1 && !contains(text, "waiting for") && !contains(text, "ranks");
  if (result == tuttiTimeout && right && only) return "";
  return "on rank " + std::to_string(rank) + ": " + text;
}

// Calls until one fails.
std::string run_until_error(tuttiComm_t comm, Calls& calls, tuttiResult_t* result) {
  const Deadline deadline = Deadline::after_ms(60'000);
  while (*result == tuttiSuccess && !deadline.passed()) *result = calls.next(comm);
  return describe(*result, comm);
}

std::string stop_one(const Case& c) {
  const Timeout timeout(kTimeoutMs);
  Shared shared;
  const auto outcomes = run_processes(c.ranks, c.transports, [&](tuttiComm_t comm, int rank, int) {
    Calls calls(c);
    std::thread stopper;
    if (rank == c.victim) {
      shared->victim = ::getpid();
      stopper = std::thread([&] {
        sleep_ms(static_cast<int>(c.seed % 40));
        ::kill(::getpid(), SIGSTOP);
      });
    }
    tuttiResult_t result = tuttiSuccess;
    const std::string text = run_until_error(comm, calls, &result);
    if (stopper.joinable()) stopper.join();
    if (rank == c.victim) return Outcome{};
    if (++shared->done == c.ranks - 1) ::kill(shared->victim, SIGCONT);
    return Outcome{judge(c, rank, result, text, " is silent: its process does not answer")};
  });
  return wrong_of(outcomes);
}

std::string delay_one(const Case& c, RunJobKind kind) {
  const Timeout timeout(kTimeoutMs);
  const auto run = kind == RunJobKind::kThreads ? run_threads : run_processes;
  const auto outcomes = run(c.ranks, c.transports, [&](tuttiComm_t comm, int rank, int) {
    Calls calls(c);
    tuttiResult_t result = tuttiSuccess;
    const unsigned before = c.seed % 30;
    for (unsigned i = 0; i < before && result == tuttiSuccess; ++i) result = calls.next(comm);
    if (result != tuttiSuccess) return Outcome{"failed too early: " + describe(result, comm)};
    if (rank == c.victim) sleep_ms(2 * kTimeoutMs);
    const std::string text = run_until_error(comm, calls, &result);
    return Outcome{judge(c, rank, result, text, " has not called operation ")};
  });
  return wrong_of(outcomes);
}

unsigned draw_seed() {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  return seed;
}

// Reports a failure, with the arguments that repeat it.
void check(const Case& c, const std::string& wrong) {
  INFO(c.ranks << " ranks, victim " << c.victim << ", " << c.transports << ", seed " << c.seed);
  CHECK(wrong == "");
}

}  // namespace

TEST_CASE("a timeout names the rank that is stopped") {
  const unsigned seed = draw_seed();
  for (const auto& [ranks, victim] : {std::pair{2, 0}, {3, 2}, {6, 0}, {7, 1}, {8, 5}}) {
    const Case c{ranks, victim, ranks % 2 == 0 ? "shm" : "tcp", seed + static_cast<unsigned>(ranks)};
    check(c, stop_one(c));
  }
}

TEST_CASE("a timeout names the rank that comes late") {
  const unsigned seed = draw_seed();
  for (const auto& [ranks, victim] : {std::pair{2, 1}, {3, 0}, {7, 1}, {8, 6}}) {
    const Case c{ranks, victim, ranks % 2 == 0 ? "tcp" : "shm", seed + static_cast<unsigned>(ranks)};
    check(c, delay_one(c, ranks == 3 || ranks == 8 ? RunJobKind::kThreads : RunJobKind::kProcesses));
  }
}

// Every rank waits for the late one; one log line names it.
TEST_CASE("rank 0 logs once for which rank an operation waits") {
  ::setenv("TUTTI_WAIT_NOTICE_MS", "4000", 1);
  for (const auto& [ranks, victim] : {std::pair{7, 6}, {4, 0}}) {
    StandardError captured;
    const auto outcomes = run_processes(ranks, "shm", [late = victim](tuttiComm_t comm, int rank, int) {
      for (int i = 0; i < 2; ++i) {
        if (rank == late) sleep_ms(8000);
        if (tuttiBarrier(comm, nullptr) != tuttiSuccess) return Outcome{tuttiGetLastError(comm)};
      }
      return Outcome{};
    });
    const std::string text = captured.take();
    INFO(ranks << " ranks, rank " << victim << " late:\n" << text);
    CHECK(wrong_of(outcomes) == "");
    const std::string named = "s: rank " + std::to_string(victim) + " (host ";
    CHECK(occurrences(text, "has waited") == 2);
    CHECK(occurrences(text, "operation 1, barrier has waited ") == 1);
    CHECK(occurrences(text, "operation 2, barrier has waited ") == 1);
    CHECK(occurrences(text, named) == 2);
  }
  ::unsetenv("TUTTI_WAIT_NOTICE_MS");
}

TEST_CASE("no warning is logged if notices are switched off") {
  ::setenv("TUTTI_WAIT_NOTICE_MS", "0", 1);
  StandardError captured;
  const auto outcomes = run_threads(2, "shm", [&](tuttiComm_t comm, int rank, int) {
    if (rank == 1) sleep_ms(1500);
    return Outcome{tuttiBarrier(comm, nullptr) == tuttiSuccess ? "" : tuttiGetLastError(comm)};
  });
  ::unsetenv("TUTTI_WAIT_NOTICE_MS");
  CHECK(wrong_of(outcomes) == "");
  CHECK(captured.take() == "");
}

// Takes minutes: run by hand.
TEST_CASE("a timeout names the right rank, whichever it is", "[.all]") {
  const unsigned seed = draw_seed();
  unsigned number = 0;
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (int victim = 0; victim < ranks; ++victim) {
      for (const char* transports : {"shm", "tcp"}) {
        const Case c{ranks, victim, transports, seed + 7919 * ++number};
        check(c, stop_one(c));
        if (number % 2 == 0) check(c, delay_one(c, number % 4 == 0 ? RunJobKind::kThreads : RunJobKind::kProcesses));
      }
    }
  }
}

}  // namespace tutti::internal::test
