// Survivor mode: calls that are an error on all ranks.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>

#include "survivors.h"

namespace tutti::internal::test {

TEST_CASE("ranks that call different collectives all get an error, as after every later call", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const auto outcomes = run_processes(3, "shm", [](tuttiComm_t comm, int rank, int) {
    std::vector<std::int32_t> send(100, 1);
    std::vector<std::int32_t> recv(300, 7);
    const tuttiResult_t result =
        rank == 1 ? tuttiAllGather(send.data(), recv.data(), 100, tuttiInt32, comm, nullptr)
                  : tuttiAllReduce(send.data(), recv.data(), 100, tuttiInt32, tuttiSum, comm, nullptr);
    const std::string text = describe(result, comm);
    if (result != tuttiMismatch || !contains(text, "all_reduce") || !contains(text, "all_gather")) return Outcome{text};
    if (std::count(recv.begin(), recv.end(), 7) != 300) return Outcome{"the buffer has changed"};
    tuttiResult_t error = tuttiSuccess;
    (void)tuttiCommGetAsyncError(comm, &error);
    const tuttiResult_t next = tuttiBarrier(comm, nullptr);
    return Outcome{error == tuttiMismatch && next == tuttiMismatch ? "" : describe(next, comm)};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("a call without elements is one of those that ranks compare", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const auto outcomes = run_processes(3, "shm", [](tuttiComm_t comm, int rank, int) {
    std::int64_t value = 1;
    tuttiResult_t result = tuttiAllReduce(&value, &value, rank == 1 ? 0 : 1, tuttiInt64, tuttiSum, comm, nullptr);
    if (rank == 1 && result == tuttiSuccess) {
      result = tuttiAllReduce(&value, &value, 1, tuttiInt64, tuttiSum, comm, nullptr);
    }
    const std::string text = describe(result, comm);
    return Outcome{result == tuttiMismatch && contains(text, "operation 1") && contains(text, "operation 2") ? ""
                                                                                                             : text};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("a rank that leaves or comes late is an error on all others", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const Timeout timeout(1500);
  const bool leaves = GENERATE(true, false);
  const auto outcomes = run_processes(3, "tcp", [&](tuttiComm_t comm, int rank, int) {
    if (rank == 1 && leaves) {
      const tuttiResult_t left = tuttiCommFinalize(comm);  // the others may have told it of their call
      return Outcome{left == tuttiSuccess || left == tuttiMismatch ? "" : describe(left, comm)};
    }
    if (rank == 1) sleep_ms(5000);
    const tuttiResult_t result = tuttiBarrier(comm, nullptr);
    const std::string text = describe(result, comm);
    const bool right = result == (leaves ? tuttiMismatch : tuttiTimeout) || (result == tuttiRemoteError && rank == 1);
    return Outcome{right && contains(text, "rank") ? "" : text};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("a call that one rank refuses fails on all after the notice time, if that rank calls nothing more",
          "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const Variable notice("TUTTI_WAIT_NOTICE_MS", "500");
  // The root of a broadcast completes it, and waits only for the agreement.
  const bool waits = GENERATE(true, false);
  for (const char* transports : {"shm", "tcp"}) {
    INFO(transports);
    const SharedMemory<std::atomic<int>> failed;
    const auto outcomes = run_processes(2, transports, [&](tuttiComm_t comm, int rank, int) {
      std::int64_t value = 1;
      const auto call = [&](void* buffer) {
        return waits ? tuttiAllReduce(buffer, buffer, 1, tuttiInt64, tuttiSum, comm, nullptr)
                     : tuttiBcast(buffer, 1, tuttiInt64, 0, comm, nullptr);
      };
      if (tuttiBarrier(comm, nullptr) != tuttiSuccess) return Outcome{tuttiGetLastError(nullptr)};
      if (rank == 1) {
        if (call(nullptr) != tuttiInvalidArgument) return Outcome{"not refused"};
        for (const Deadline end = Deadline::after_ms(30'000); *failed.get() == 0 && !end.passed();) sleep_ms(5);
        tuttiResult_t error = tuttiSuccess;  // it is on its way
        for (const Deadline end = Deadline::after_ms(kNoticeMs); error == tuttiSuccess && !end.passed(); sleep_ms(1))
          (void)tuttiCommGetAsyncError(comm, &error);
        const tuttiResult_t result = call(&value);
        return Outcome{result == tuttiRemoteError && value == 1 ? "" : "a later call: " + describe(result, comm)};
      }
      if (!waits) sleep_ms(1000);  // the refusal is older than the wait
      const std::int64_t begin_ns = now_ns();
      const tuttiResult_t result = call(&value);
      const std::string text = describe(result, comm);
      ++*failed.get();
      if (now_ns() - begin_ns > kNoticeMs * 1'000'000) return Outcome{"late: " + text};
      const bool right = result == tuttiRemoteError && contains(text, "rank 1 (host ") &&
                         contains(text, waits ? "all_reduce: " : "broadcast: ") &&
                         contains(text, "refused its operation");
      return Outcome{right ? "" : text};
    });
    REQUIRE(wrong_of(outcomes) == "");
  }
}

TEST_CASE("a refused call that is made again goes on with the others", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const auto outcomes = run_processes(3, "shm", [&](tuttiComm_t comm, int rank, int) {
    std::int64_t one = 1;
    if (rank == 1) {
      if (tuttiAllReduce(&one, &one, 1, tuttiInt64, tuttiSum, nullptr, nullptr) != tuttiInvalidArgument ||
          tuttiAllReduce(nullptr, &one, 1, tuttiInt64, tuttiSum, comm, nullptr) != tuttiInvalidArgument) {
        return Outcome{"not refused"};
      }
      sleep_ms(700);
    }
    for (int i = 0; i < 3; ++i) {
      one = 1;
      if (tuttiAllReduce(&one, &one, 1, tuttiInt64, tuttiSum, comm, nullptr) != tuttiSuccess || one != 3) {
        return Outcome{tuttiGetLastError(nullptr)};
      }
    }
    return Outcome{};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("a death within a split is an error that names the dead rank", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  for (const char* transports : {"shm", "tcp"}) {
    for (const bool with_texts : {false, true}) {
      const SharedMemory<std::atomic<int>> calls;
      const auto outcomes = run_processes(4, transports, [&](tuttiComm_t comm, int rank, int) {
        if (rank == 2) {
          while (*calls.get() < 3) sleep_ms(1);
          sleep_ms(50);
          ::kill(::getpid(), SIGKILL);
        }
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.interface = "^none";
        ++*calls.get();
        tuttiComm_t part = nullptr;
        const tuttiResult_t result = tuttiCommSplit(comm, rank % 2, 0, &part, with_texts ? &config : nullptr);
        if (result != tuttiRemoteError || part != nullptr || !contains(tuttiGetLastError(nullptr), "rank 2 has died")) {
          return Outcome{describe(result, comm)};
        }
        std::int64_t one = 1;
        const bool goes_on = tuttiAllReduce(&one, &one, 1, tuttiInt64, tuttiSum, comm, nullptr) == tuttiSuccess;
        return Outcome{goes_on && one == 3 ? "" : tuttiGetLastError(nullptr)};
      });
      INFO(transports);
      for (const int rank : {0, 1, 3}) REQUIRE(outcomes[static_cast<std::size_t>(rank)].wrong == "");
    }
  }
}

}  // namespace tutti::internal::test
