// A call that one rank refuses because of its arguments: the others receive the reason, and fail only if the rank does
// not call again.
#include <atomic>
#include <functional>

#include "collectives/suites.h"
#include "faults.h"

namespace tutti::internal::test {
namespace {

// Text in the notices and errors of the other ranks, for every refusing rank.
constexpr const char* kRefused = " refused its operation 2: ";

// How a rank calls.
enum class Way { kBlocking, kStream, kGroup, kGroupInStream };
constexpr Way kWays[] = {Way::kBlocking, Way::kStream, Way::kGroup, Way::kGroupInStream};

using Call = std::function<tuttiResult_t(void* stream)>;

tuttiResult_t make(Way way, const Call& call) {
  const bool grouped = way == Way::kGroup || way == Way::kGroupInStream;
  tuttiStream_t stream = nullptr;
  const bool queued = way != Way::kBlocking && way != Way::kGroup;
  // Used in the ranks' threads, which cannot make assertions.
  tuttiResult_t result = queued ? tuttiStreamCreate(&stream) : tuttiSuccess;
  if (result == tuttiSuccess && grouped) result = tuttiGroupStart();
  if (result != tuttiSuccess) return result;
  result = call(stream);
  if (grouped) {
    const tuttiResult_t ended = tuttiGroupEnd();
    if (result == tuttiSuccess) result = ended;
  }
  if (stream == nullptr) return result;
  const tuttiResult_t synchronized = tuttiStreamSynchronize(stream);
  (void)tuttiStreamDestroy(stream);
  return result == tuttiSuccess ? synchronized : result;
}

std::string warm_up(tuttiComm_t comm) {
  float v = 1;
  const tuttiResult_t result = tuttiAllReduce(&v, &v, 1, tuttiFloat32, tuttiSum, comm, nullptr);
  return result == tuttiSuccess ? "" : "warm-up: " + describe(result, comm);
}

struct Reduced {
  std::vector<float> send = std::vector<float>(100, 1);
  std::vector<float> recv = std::vector<float>(100, 0);
  Call call(tuttiComm_t comm, int root) {
    return [this, comm, root](void* stream) {
      return tuttiReduce(send.data(), recv.data(), send.size(), tuttiFloat32, tuttiSum, root, comm, stream);
    };
  }
  // All ranks continue together.
  std::string all_reduce(tuttiComm_t comm, Way way, int ranks) {
    const tuttiResult_t result = make(way, [&](void* stream) {
      return tuttiAllReduce(send.data(), recv.data(), send.size(), tuttiFloat32, tuttiSum, comm, stream);
    });
    if (result != tuttiSuccess) return describe(result, comm);
    return recv == std::vector<float>(100, static_cast<float>(ranks)) ? "" : "wrong sum";
  }
};

struct Case {
  RunJob run;
  const char* transports;
  int ranks;
  Way way;
};

void for_all(RunJob run, const std::function<void(const Case&)>& check) {
  for (const char* transports : {"shm", "tcp"}) {
    for (const int ranks : {2, 4}) {
      for (const Way way : kWays) {
        INFO(transports << ", " << ranks << " ranks, way " << static_cast<int>(way));
        check({run, transports, ranks, way});
      }
    }
  }
}

// One rank's root is wrong, and correct `pause_ms` later: the last rank's, unless another is given.
std::vector<Outcome> retry(const Case& c, int pause_ms, int refuser = -1) {
  return c.run(c.ranks, c.transports, [&](tuttiComm_t comm, int rank, int n) {
    if (std::string wrong = warm_up(comm); !wrong.empty()) return Outcome{wrong};
    Reduced reduced;
    if (rank == (refuser < 0 ? n - 1 : refuser)) {
      const tuttiResult_t refused = make(c.way, reduced.call(comm, n + 7));
      if (refused != tuttiInvalidArgument) return Outcome{"not refused: " + describe(refused, comm)};
      sleep_ms(pause_ms);
    }
    const tuttiResult_t result = make(c.way, reduced.call(comm, 0));
    if (result != tuttiSuccess) return Outcome{describe(result, comm)};
    if (rank == 0 && reduced.recv.front() != static_cast<float>(n)) return Outcome{"wrong sum"};
    for (int i = 0; i < 3; ++i) {
      if (std::string wrong = reduced.all_reduce(comm, c.way, n); !wrong.empty()) return Outcome{wrong};
    }
    return Outcome{};
  });
}

// The last rank's root is wrong, and it calls nothing more until the others have failed.
std::vector<Outcome> no_retry(const Case& c) {
  const SharedMemory<std::atomic<int>> failed;
  return c.run(c.ranks, c.transports, [&](tuttiComm_t comm, int rank, int n) {
    if (std::string wrong = warm_up(comm); !wrong.empty()) return Outcome{wrong};
    Reduced reduced;
    if (rank == n - 1) {
      const tuttiResult_t refused = make(c.way, reduced.call(comm, n + 7));
      if (refused != tuttiInvalidArgument) return Outcome{"not refused: " + describe(refused, comm)};
      for (const Deadline deadline = Deadline::after_ms(30'000); *failed.get() < n - 1 && !deadline.passed();)
        sleep_ms(5);
      // The failure is in flight.
      tuttiResult_t heard = tuttiSuccess;
      for (const Deadline deadline = Deadline::after_ms(kNoticeMs); heard == tuttiSuccess && !deadline.passed();)
        (void)tuttiCommGetAsyncError(comm, &heard);
      const tuttiResult_t late = make(c.way, reduced.call(comm, n - 1));
      return Outcome{late == tuttiRemoteError ? "" : "the late call got " + describe(late, comm)};
    }
    const tuttiResult_t result = make(c.way, reduced.call(comm, n - 1));
    // A sent input is not a waiting operation.
    const tuttiResult_t next =
        result == tuttiSuccess ? make(c.way, [&](void* stream) { return tuttiBarrier(comm, stream); }) : result;
    const std::string text = describe(next, comm);
    ++*failed.get();
    const bool right = next == tuttiRemoteError && contains(text, "rank " + std::to_string(n - 1) + " (host ") &&
                       contains(text, kRefused) && contains(text, "reduce: root " + std::to_string(n + 7));
    return Outcome{right ? "" : text};
  });
}

}  // namespace

TEST_CASE("refusal: a rank that calls again continues with the others (threads)", "[threads]") {
  for_all(run_threads, [](const Case& c) { CHECK(wrong_of(retry(c, 0)) == ""); });
}

TEST_CASE("refusal: a rank that calls again continues with the others (processes)", "[processes]") {
  for_all(run_processes, [](const Case& c) { CHECK(wrong_of(retry(c, 0)) == ""); });
}

TEST_CASE("refusal: a rank that calls again within the notice time fails no other rank, and a notice names it",
          "[processes]") {
  const Variable notice("TUTTI_WAIT_NOTICE_MS", "20000");
  for (const char* transports : {"shm", "tcp"}) {
    for (const int refuser : {0, 3}) {
      StandardError captured;
      const auto outcomes = retry({run_processes, transports, 4, Way::kBlocking}, 3000, refuser);
      const std::string text = captured.take();
      INFO(transports << ", rank " << refuser << ": " << text);
      CHECK(wrong_of(outcomes) == "");
      CHECK(occurrences(text, kRefused) == 1);
      CHECK(contains(text, "rank " + std::to_string(refuser) + " (host "));
      CHECK(contains(text, "reduce: root 11 is not a rank of 4"));
    }
  }
}

TEST_CASE("refusal: in a communicator that was split off, it uses that communicator's rank numbers", "[processes]") {
  const Variable notice("TUTTI_WAIT_NOTICE_MS", "700");
  for (const char* transports : {"shm", "tcp"}) {
    const SharedMemory<std::atomic<int>> failed;
    const auto outcomes = run_processes(4, transports, [&](tuttiComm_t parent, int rank, int) {
      tuttiComm_t comm = nullptr;
      // Rank 3 of the job is rank 0 there; rank 2 does not take part.
      if (tuttiCommSplit(parent, rank == 2 ? TUTTI_SPLIT_NOCOLOR : 0, -rank, &comm, nullptr) != tuttiSuccess)
        return Outcome{tuttiGetLastError(parent)};
      if (rank == 2) {
        for (const Deadline deadline = Deadline::after_ms(30'000); *failed.get() < 2 && !deadline.passed();)
          sleep_ms(5);
        return Outcome{};
      }
      Reduced reduced;
      Outcome outcome{warm_up(comm)};
      const tuttiResult_t result = make(Way::kBlocking, [&](void* stream) {
        return rank == 3 ? reduced.call(comm, -1)(stream) : tuttiBarrier(comm, stream);
      });
      const std::string text = describe(result, comm);
      if (rank == 3) {
        for (const Deadline deadline = Deadline::after_ms(30'000); *failed.get() < 2 && !deadline.passed();)
          sleep_ms(5);
      } else {
        ++*failed.get();
        const bool right =
            contains(text, "rank 0 (host ") && contains(text, "refused its operation 2: reduce: root -1");
        if (!right) outcome.wrong += text;
      }
      (void)tuttiCommDestroy(comm);
      return outcome;
    });
    INFO(transports);
    CHECK(wrong_of(outcomes) == "");
  }
}

TEST_CASE("refusal: the others fail after the notice time if the rank does not call again (threads)", "[threads]") {
  const Variable notice("TUTTI_WAIT_NOTICE_MS", "500");
  for_all(run_threads, [](const Case& c) { CHECK(wrong_of(no_retry(c)) == ""); });
}

TEST_CASE("refusal: the others fail after the notice time if the rank does not call again (processes)", "[processes]") {
  const Variable notice("TUTTI_WAIT_NOTICE_MS", "500");
  for_all(run_processes, [](const Case& c) { CHECK(wrong_of(no_retry(c)) == ""); });
}

TEST_CASE("refusal: ranks that check each call beforehand get the reason as well", "[processes]") {
  const Variable strict("TUTTI_CHECK", "strict");
  for (const Way way : {Way::kBlocking, Way::kStream}) {
    CHECK(wrong_of(retry({run_processes, "shm", 3, way}, 300)) == "");
    const Variable notice("TUTTI_WAIT_NOTICE_MS", "500");
    CHECK(wrong_of(no_retry({run_processes, "tcp", 3, way})) == "");
  }
}

// Rank 1 of 3 ends by `end` after its refusal, and the others' errors contain `word`.
void require_reason(const char* word, const std::function<void(tuttiComm_t)>& end) {
  for (const char* transports : {"shm", "tcp"}) {
    for (const Way way : kWays) {
      const SharedMemory<std::atomic<int>> accepted;
      auto outcomes = run_processes(3, transports, [&](tuttiComm_t comm, int rank, int) {
        if (std::string wrong = warm_up(comm); !wrong.empty()) return Outcome{wrong};
        Reduced reduced;
        const tuttiResult_t result = make(way, reduced.call(comm, rank == 1 ? 5 : 1));
        if (rank == 1) {
          if (result != tuttiInvalidArgument) ++*accepted.get();
          end(comm);
          return Outcome{};
        }
        // The input may have been sent.
        const tuttiResult_t failed =
            result == tuttiSuccess ? make(way, [&](void* stream) { return tuttiBarrier(comm, stream); }) : result;
        const std::string text = describe(failed, comm);
        const bool right = contains(text, word) && contains(text, kRefused) &&
                           occurrences(text, "reduce: root 5 is not a rank of 3") == 1;
        return Outcome{right ? "" : "instead of the reason: " + text};
      });
      outcomes[1].wrong.clear();  // it may have died
      CHECK(*accepted.get() == 0);
      INFO(transports << ", way " << static_cast<int>(way));
      CHECK(wrong_of(outcomes) == "");
    }
  }
}

TEST_CASE("refusal: the error of ranks that wait for one that has left contains its refusal", "[processes]") {
  require_reason("left", [](tuttiComm_t comm) { (void)tuttiCommFinalize(comm); });
}

TEST_CASE("refusal: the error of ranks that wait for one that has died contains its refusal", "[processes]") {
  require_reason("died", [](tuttiComm_t) { ::_exit(1); });
}

TEST_CASE("refusal: a rank that calls a different operation is a mismatch that contains its refusal", "[processes]") {
  for (const char* transports : {"shm", "tcp"}) {
    const auto outcomes = run_processes(2, transports, [&](tuttiComm_t comm, int rank, int) {
      if (std::string wrong = warm_up(comm); !wrong.empty()) return Outcome{wrong};
      std::vector<float> in(100, 1);
      std::vector<float> out(200);
      const auto reduce = [&](const float* from) {
        return tuttiAllReduce(from, out.data(), in.size(), tuttiFloat32, tuttiSum, comm, nullptr);
      };
      if (rank == 1 && reduce(nullptr) != tuttiInvalidArgument) return Outcome{"not refused"};
      if (rank == 1) sleep_ms(500);
      const tuttiResult_t result =
          rank == 1 ? tuttiAllGather(in.data(), out.data(), in.size(), tuttiFloat32, comm, nullptr) : reduce(in.data());
      const std::string text = describe(result, comm);
      if (result != tuttiMismatch) return Outcome{text};
      return Outcome{rank == 1 || contains(text, "refused its operation 2: all_reduce: sendbuff is NULL") ? "" : text};
    });
    INFO(transports);
    CHECK(wrong_of(outcomes) == "");
  }
}

TEST_CASE("refusal: the receiving rank hears of a refused send, which may be called again", "[processes]") {
  for (const char* transports : {"shm", "tcp"}) {
    for (const Way way : kWays) {
      for (const bool again : {true, false}) {
        const Variable notice("TUTTI_WAIT_NOTICE_MS", again ? "20000" : "1500");
        const SharedMemory<std::atomic<int>> failed;
        const auto outcomes = run_processes(2, transports, [&](tuttiComm_t comm, int rank, int) {
          if (std::string wrong = warm_up(comm); !wrong.empty()) return Outcome{wrong};
          std::vector<float> v(50, static_cast<float>(rank));
          const auto move = [&](float* at) {
            return make(way, [&](void* stream) {
              return rank == 1 ? tuttiSend(at, v.size(), tuttiFloat32, 0, comm, stream)
                               : tuttiRecv(at, v.size(), tuttiFloat32, 1, comm, stream);
            });
          };
          if (rank == 1 && move(nullptr) != tuttiInvalidArgument) return Outcome{"not refused"};
          if (rank == 1 && again) sleep_ms(500);
          if (rank == 1 && !again) {
            for (const Deadline deadline = Deadline::after_ms(30'000); *failed.get() == 0 && !deadline.passed();)
              sleep_ms(5);
            return Outcome{};
          }
          const tuttiResult_t result = move(v.data());
          const std::string text = describe(result, comm);
          ++*failed.get();
          if (again) return Outcome{result != tuttiSuccess ? text : v.front() == 1 ? "" : "wrong data"};
          const bool right = result == tuttiRemoteError && contains(text, "rank 1 (host ") && contains(text, "send") &&
                             contains(text, "sendbuff is NULL");
          return Outcome{right ? "" : text};
        });
        INFO(transports << ", way " << static_cast<int>(way) << (again ? ", again" : ""));
        CHECK(wrong_of(outcomes) == "");
      }
    }
  }
}

TEST_CASE("refusal: a call after queued ones is reported when those are complete", "[processes]") {
  const Variable notice("TUTTI_WAIT_NOTICE_MS", "1000");
  for (const char* transports : {"shm", "tcp"}) {
    const SharedMemory<std::atomic<int>> failed;
    const auto outcomes = run_processes(3, transports, [&](tuttiComm_t comm, int rank, int) {
      if (std::string wrong = warm_up(comm); !wrong.empty()) return Outcome{wrong};
      Reduced reduced;
      tuttiStream_t stream = nullptr;
      if (tuttiStreamCreate(&stream) != tuttiSuccess) return Outcome{"no stream"};
      // Rank 0 reaches operation 2 after the notice time, which fails no rank: rank 2 has refused operation 3.
      if (rank == 0) sleep_ms(2500);
      const tuttiResult_t first = tuttiBarrier(comm, stream);
      if (rank == 2) {
        if (reduced.call(comm, 9)(stream) != tuttiInvalidArgument) return Outcome{"not refused"};
        const tuttiResult_t ended = tuttiStreamSynchronize(stream);
        if (ended != tuttiSuccess) return Outcome{describe(ended, comm)};
        for (const Deadline deadline = Deadline::after_ms(30'000); *failed.get() < 2 && !deadline.passed();)
          sleep_ms(5);
        return Outcome{};
      }
      const tuttiResult_t queued = tuttiStreamSynchronize(stream);
      if (first != tuttiSuccess || queued != tuttiSuccess) return Outcome{describe(queued, comm)};
      const tuttiResult_t result = tuttiBarrier(comm, nullptr);
      const std::string text = describe(result, comm);
      ++*failed.get();
      return Outcome{result == tuttiRemoteError && contains(text, "refused its operation 3: reduce: root 9") ? ""
                                                                                                             : text};
    });
    INFO(transports);
    CHECK(wrong_of(outcomes) == "");
  }
}

}  // namespace tutti::internal::test
