// Processes that are killed while the others are inside an operation.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>

#include "faults.h"

namespace tutti::internal::test {
namespace {

// When the victim was killed.
using Shared = SharedMemory<std::atomic<std::int64_t>>;

struct Kill {
  std::string transports;
  int ranks;
  int victim;
  std::size_t count;
};

Outcome survivor(tuttiComm_t comm, const Kill& kill, Shared& shared) {
  const tuttiResult_t result = reduce_until_error(comm, kill.count);
  const std::int64_t ms = (now_ns() - *shared.get()) / 1'000'000;
  const std::string text = describe(result, comm);
  Outcome outcome;
  outcome.digest = static_cast<std::uint64_t>(ms);
  tuttiResult_t error = tuttiSuccess;
  float v = 0;
  if (result != tuttiRemoteError) {
    outcome.wrong = "no remote error: " + text;
  } else if (!contains(text, "rank " + std::to_string(kill.victim))) {
    outcome.wrong = "the dead rank is not named: " + text;
  } else if (ms > kNoticeMs) {
    outcome.wrong = "noticed after " + std::to_string(ms) + " ms";
  } else if (tuttiCommGetAsyncError(comm, &error) != tuttiSuccess || error != tuttiRemoteError) {
    outcome.wrong = "the asynchronous error is " + std::to_string(error);
  } else if (tuttiAllReduce(&v, &v, 1, tuttiFloat32, tuttiSum, comm, nullptr) != tuttiRemoteError) {
    outcome.wrong = "a failed communicator took another operation";
  }
  return outcome;
}

void require_noticed(const Kill& kill) {
  Shared shared;
  const auto outcomes = run_processes(kill.ranks, kill.transports, [&](tuttiComm_t comm, int rank, int) {
    if (rank != kill.victim) return survivor(comm, kill, shared);
    std::thread assassin([&] {
      sleep_ms(100);
      *shared.get() = now_ns();
      ::kill(::getpid(), SIGKILL);
    });
    (void)reduce_until_error(comm, kill.count);
    assassin.join();
    return Outcome{"the victim lives"};
  });
  std::int64_t slowest = 0;
  INFO(kill.transports << ", " << kill.ranks << " ranks, victim " << kill.victim << ", count " << kill.count);
  for (int r = 0; r < kill.ranks; ++r) {
    const Outcome& o = outcomes[static_cast<std::size_t>(r)];
    INFO("rank " << r);
    if (r == kill.victim) {
      REQUIRE(contains(o.wrong, "wait status 9"));
    } else {
      REQUIRE(o.wrong == "");
      slowest = std::max(slowest, static_cast<std::int64_t>(o.digest));
    }
  }
  std::printf("%s, %d ranks, victim %d, count %zu: noticed by all after %lld ms\n", kill.transports.c_str(), kill.ranks,
              kill.victim, kill.count, static_cast<long long>(slowest));
}

}  // namespace

TEST_CASE("survivors of a killed rank name it, over shared memory", "[shm]") {
  for (const std::size_t count : {std::size_t{4}, std::size_t{1} << 20}) {
    for (const int ranks : {2, 3, 8}) require_noticed({"shm", ranks, ranks - 1, count});
    require_noticed({"shm", 3, 0, count});
  }
}

TEST_CASE("survivors of a killed rank name it, over TCP", "[tcp]") {
  for (const std::size_t count : {std::size_t{4}, std::size_t{1} << 20}) {
    for (const int ranks : {2, 3, 8}) require_noticed({"tcp", ranks, ranks - 1, count});
    require_noticed({"tcp", 3, 0, count});
  }
}

TEST_CASE("a rank that dies before its first operation is named", "[shm]") {
  Shared shared;
  const auto outcomes = run_processes(4, "shm,tcp", [&](tuttiComm_t comm, int rank, int) {
    if (rank == 2) {
      *shared.get() = now_ns();
      ::kill(::getpid(), SIGKILL);
    }
    return survivor(comm, {"shm,tcp", 4, 2, 1000}, shared);
  });
  // A rank that is still joining when the victim dies notices it there.
  for (const std::size_t r : {0U, 1U, 3U}) {
    const std::string& wrong = outcomes[r].wrong;
    INFO(wrong);
    REQUIRE((wrong.empty() || (contains(wrong, "init: ") && contains(wrong, "rank 2"))));
  }
}

}  // namespace tutti::internal::test
