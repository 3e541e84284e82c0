// TCP connections of links that break while all ranks live (TUTTI_RECONNECT_MS).
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <csignal>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <random>

#include "fault/broken_connections.h"
#include "faults.h"
#include "sanitizers.h"

namespace tutti::internal::test {
namespace {

using How = Connections::How;

// Sets the settings of the jobs made while it lives.
class Variables {
 public:
  Variables(int reconnect_ms, int streams) {
    ::setenv("TUTTI_TRANSPORTS", "tcp", 1);
    ::setenv("TUTTI_INTERFACE", "lo", 1);
    ::setenv("TUTTI_LOG", "info", 1);
    ::setenv("TUTTI_TIMEOUT_MS", "60000", 1);
    ::setenv("TUTTI_RECONNECT_MS", std::to_string(reconnect_ms).c_str(), 1);
    ::setenv("TUTTI_TCP_STREAMS", std::to_string(streams).c_str(), 1);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;
  ~Variables() {
    for (const char* const name : {"TUTTI_TRANSPORTS", "TUTTI_INTERFACE", "TUTTI_LOG", "TUTTI_TIMEOUT_MS",
                                   "TUTTI_RECONNECT_MS", "TUTTI_TCP_STREAMS"}) {
      ::unsetenv(name);
    }
  }
};

// Ranks that are threads of this process and have joined as processes do.
class Job {
 public:
  using Body = std::function<std::string(tuttiComm_t comm, int rank)>;  // an empty text is success
  Job(int ranks, int reconnect_ms, int streams) : variables_(reconnect_ms, streams) {
    comms_.resize(static_cast<std::size_t>(ranks));
    tuttiUniqueId id;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    std::vector<tuttiResult_t> joined(comms_.size(), tuttiInternalError);
    on_all([&](std::size_t rank) {
      joined[rank] = tuttiCommInitRank(&comms_[rank], static_cast<int>(comms_.size()), id, static_cast<int>(rank));
    });
    for (const tuttiResult_t result : joined) REQUIRE(result == tuttiSuccess);
    connections_.emplace();
  }
  [[nodiscard]] const Connections& connections() const { return *connections_; }
  // All ranks run `body`, and `disturb` runs beside them.
  void run(const Body& body, const std::function<void()>& disturb) {
    std::vector<std::string> wrong(comms_.size());
    std::thread disturber(disturb);
    on_all([&](std::size_t rank) { wrong[rank] = body(comms_[rank], static_cast<int>(rank)); });
    disturber.join();
    for (const std::string& one : wrong) CHECK(one == "");
  }
  void destroy() {
    std::vector<tuttiResult_t> destroyed(comms_.size(), tuttiInternalError);
    on_all([&](std::size_t rank) { destroyed[rank] = tuttiCommDestroy(comms_[rank]); });
    for (const tuttiResult_t result : destroyed) CHECK(result == tuttiSuccess);
  }

 private:
  void on_all(const std::function<void(std::size_t)>& body) const {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < comms_.size(); ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }
  Variables variables_;
  std::vector<tuttiComm_t> comms_;
  std::optional<Connections> connections_;
};

std::string failure(const char* call, tuttiResult_t result, tuttiComm_t comm) {
  return std::string(call) + ": " + describe(result, comm);
}

// Operations of one round, with results that depend on the round.
std::string reduce(tuttiComm_t comm, int rank, int ranks, std::size_t count, std::int64_t round) {
  std::vector<std::int64_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = round + rank + static_cast<std::int64_t>(i);
  const auto result = tuttiAllReduce(values.data(), values.data(), count, tuttiInt64, tuttiSum, comm, nullptr);
  if (result != tuttiSuccess) return failure("all_reduce", result, comm);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t expected = ranks * (round + static_cast<std::int64_t>(i)) + ranks * (ranks - 1) / 2;
    if (values[i] != expected) return "all_reduce: element " + std::to_string(i) + " is wrong";
  }
  return {};
}

std::string broadcast(tuttiComm_t comm, int rank, int ranks, std::size_t count, std::int64_t round) {
  const int root = static_cast<int>(round % ranks);
  std::vector<std::int64_t> values(count, -1);
  if (rank == root) std::iota(values.begin(), values.end(), round);
  const auto result = tuttiBroadcast(values.data(), values.data(), count, tuttiInt64, root, comm, nullptr);
  if (result != tuttiSuccess) return failure("broadcast", result, comm);
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] != round + static_cast<std::int64_t>(i))
      return "broadcast: element " + std::to_string(i) + " is wrong";
  }
  // What is still to be sent must not be read from here.
  std::fill(values.begin(), values.end(), -2);
  return {};
}

std::string pass_on(tuttiComm_t comm, int rank, int ranks, std::size_t count, std::int64_t round) {
  const int next = (rank + 1) % ranks;
  const int previous = (rank + ranks - 1) % ranks;
  std::vector<std::int64_t> sent(count, round * ranks + rank);
  std::vector<std::int64_t> received(count, -1);
  auto result = tuttiGroupStart();
  if (result == tuttiSuccess) result = tuttiSend(sent.data(), count, tuttiInt64, next, comm, nullptr);
  if (result == tuttiSuccess) result = tuttiRecv(received.data(), count, tuttiInt64, previous, comm, nullptr);
  const auto ended = tuttiGroupEnd();
  if (result == tuttiSuccess) result = ended;
  if (result != tuttiSuccess) return failure("send and receive", result, comm);
  for (const std::int64_t value : received) {
    if (value != round * ranks + previous) return "send and receive: an element is wrong";
  }
  return {};
}

constexpr int kSizes = 6;

std::string one_round(tuttiComm_t comm, int rank, int ranks, std::int64_t round) {
  static constexpr std::array<std::size_t, kSizes> kCounts{1, 37, 4096, 100'000, 131'072, 1'048'576};
  const std::size_t count = kCounts[static_cast<std::size_t>(round % kSizes)];
  for (const auto operation : {reduce, broadcast, pass_on}) {
    if (std::string wrong = operation(comm, rank, ranks, count, round); !wrong.empty()) {
      return "rank " + std::to_string(rank) + ", round " + std::to_string(round) + ": " + wrong;
    }
  }
  return {};
}

// A stream counts as ended by the peer if all its new connections end, for half a second, before the peer's answer. On
// a busy machine an answer takes long. So no more than this number of connections break before operations have gone on.
constexpr int kBreaksInARow = 4;

void await_rounds(const std::atomic<int>& completed, int more, const Deadline& deadline) {
  const int enough = completed + more;
  while (completed < enough && !deadline.passed()) sleep_ms(1);
}

// Runs rounds while `breaks` connections break, one after the other.
void run_with_breaks(int ranks, int streams, How how, int breaks, unsigned seed) {
  INFO(ranks << " ranks, " << streams << " streams, seed " << seed);
  StandardError errors;
  std::string text;
  int made = 0;  // a slow machine has no time for all
  {
    Job job(ranks, 30'000, streams);
    std::atomic<bool> broken{false};
    std::atomic<int> completed{0};  // rounds, by all ranks
    std::barrier<> rounds(ranks);
    std::vector<char> done(1);
    const auto body = [&](tuttiComm_t comm, int rank) {
      std::string wrong;
      bool over = false;
      for (std::int64_t round = 0; !over; ++round) {
        if (wrong.empty()) wrong = one_round(comm, rank, ranks, round);
        if (rank == 0) done[0] = broken ? 1 : 0;
        rounds.arrive_and_wait();
        if (rank == 0) ++completed;
        over = done[0] != 0;
        rounds.arrive_and_wait();
      }
      return wrong;
    };
    job.run(body, [&] {
      std::minstd_rand random(seed);
      const Deadline deadline = Deadline::after_ms(60'000);
      while (made < breaks && !deadline.passed()) {
        sleep_ms(1 + static_cast<int>(random() % 20));
        if (!job.connections().break_any(how, random)) continue;
        // Then one round of each size, which together use all connections.
        if (++made % kBreaksInARow == 0) await_rounds(completed, kSizes + 1, deadline);
      }
      broken = true;
    });
    job.destroy();
    text = errors.take();
  }
  // A connection may break again before it is used.
  INFO(text);
  CHECK(made >= kBreaksInARow);
  CHECK(occurrences(text, "tcp connection made anew after") >= static_cast<std::size_t>(made / 4));
}

}  // namespace

TEST_CASE("operations go on while connections end one after the other", "[threads]") {
  const int less = kAnySanitizer ? 4 : 1;
  run_with_breaks(2, 1, How::kEnd, 200 / less, 1);
  run_with_breaks(2, 3, How::kEnd, 100 / less, 2);
  run_with_breaks(4, 2, How::kEnd, 100 / less, 3);
}

TEST_CASE("operations go on while connections are reset one after the other", "[threads]") {
  if (!Connections::can(How::kReset)) {
    WARN("this process may not reset connections (CAP_NET_ADMIN)");
    return;
  }
  const int less = kAnySanitizer ? 4 : 1;
  run_with_breaks(2, 1, How::kReset, 200 / less, 4);
  run_with_breaks(4, 2, How::kReset, 100 / less, 5);
}

TEST_CASE("an operation goes on after all of its connections have broken at once", "[threads]") {
  for (const How how : {How::kEnd, How::kReset}) {
    if (!Connections::can(how)) continue;
    Job job(4, 30'000, 4);
    std::atomic<bool> over{false};
    std::atomic<int> completed{0};  // rounds, by rank 0
    const auto body = [&](tuttiComm_t comm, int rank) {
      std::string wrong;
      for (std::int64_t round = 0; round < 24 && wrong.empty(); ++round) {
        wrong = one_round(comm, rank, 4, round);
        if (rank == 0) ++completed;
      }
      over = true;
      return wrong;
    };
    job.run(body, [&] {
      while (!over) {
        // New connections are ended as well. If that lasts for half a second, a rank takes it for the end of the link.
        const int before = completed;
        sleep_ms(700);
        while (completed < before + 2 && !over) sleep_ms(1);
        job.connections().break_all(how);
      }
    });
    job.destroy();
  }
}

TEST_CASE("data arrives that a rank has sent, and overwritten, before its connection broke", "[threads]") {
  for (const How how : {How::kEnd, How::kReset}) {
    if (!Connections::can(how)) continue;
    for (const int sender : {0, 1}) {
      Job job(2, 30'000, 1);
      std::barrier<> steps(3);
      const std::size_t count = 200'000;
      const auto body = [&](tuttiComm_t comm, int rank) -> std::string {
        std::vector<std::int64_t> values(count, -1);
        if (std::string wrong = one_round(comm, rank, 2, 0); !wrong.empty()) return wrong;
        if (rank == sender) std::iota(values.begin(), values.end(), 7);
        tuttiResult_t result = tuttiSuccess;
        if (rank == sender) result = tuttiSend(values.data(), count, tuttiInt64, 1 - sender, comm, nullptr);
        std::fill(values.begin(), values.end(), -2);
        steps.arrive_and_wait();  // the sender has returned
        steps.arrive_and_wait();  // the connection is broken
        if (rank == sender) sleep_ms(300);
        if (rank != sender) result = tuttiRecv(values.data(), count, tuttiInt64, sender, comm, nullptr);
        if (result != tuttiSuccess) return failure("send or receive", result, comm);
        for (std::size_t i = 0; rank != sender && i < count; ++i) {
          if (values[i] != 7 + static_cast<std::int64_t>(i)) return "element " + std::to_string(i) + " is wrong";
        }
        return one_round(comm, rank, 2, 1);
      };
      job.run(body, [&] {
        steps.arrive_and_wait();
        job.connections().break_all(how);
        steps.arrive_and_wait();
      });
      job.destroy();
    }
  }
}

TEST_CASE("a connection breaks while a rank computes, and is needed by the other", "[threads]") {
  Job job(2, 2'500, 1);
  std::barrier<> steps(3);
  const auto body = [&](tuttiComm_t comm, int rank) -> std::string {
    if (std::string wrong = one_round(comm, rank, 2, 0); !wrong.empty()) return wrong;
    steps.arrive_and_wait();
    if (rank == 1) sleep_ms(6'000);
    for (std::int64_t round = 1; round < 6; ++round) {
      if (std::string wrong = one_round(comm, rank, 2, round); !wrong.empty()) return wrong;
    }
    return {};
  };
  job.run(body, [&] {
    steps.arrive_and_wait();
    sleep_ms(500);
    job.connections().break_all(How::kEnd);
  });
  job.destroy();
}

TEST_CASE("connections that break while ranks finalize lose nothing", "[threads]") {
  for (int repetition = 0; repetition < (kAnySanitizer ? 12 : 40); ++repetition) {
    Job job(3, 30'000, 2);
    std::atomic<bool> over{false};
    std::atomic<int> steps{0};
    const auto body = [&](tuttiComm_t comm, int rank) {
      std::string wrong;
      for (std::int64_t round = 0; round < 4 && wrong.empty(); ++round) {
        wrong = one_round(comm, rank, 3, round);
        ++steps;
      }
      steps += 3;  // connections break again
      const auto result = tuttiCommFinalize(comm);
      if (wrong.empty() && result != tuttiSuccess) wrong = failure("finalize", result, comm);
      over = true;
      return wrong;
    };
    job.run(body, [&] {
      std::minstd_rand random(static_cast<unsigned>(repetition));
      while (!over) {
        const int before = steps;
        for (int i = 0; i < kBreaksInARow && !over; ++i) {
          sleep_ms(3);
          job.connections().break_any(How::kEnd, random);
        }
        // A round of all ranks; or a pause, while they finalize.
        const Deadline pause = Deadline::after_ms(1'000);
        while (steps < before + 3 && !over && !pause.passed()) sleep_ms(1);
      }
    });
    job.destroy();
  }
}

TEST_CASE("ranks leave one after the other, and none waits for peers that have left", "[threads]") {
  // Less than the time for which a rank that leaves waits for its data to be acknowledged. Rank 2 has peers.
  constexpr std::array<std::int64_t, 3> kLongestMs{1'800, 1'800, 5'000};
  Job job(3, 30'000, 2);
  std::barrier<> steps(3);
  const auto body = [&](tuttiComm_t comm, int rank) -> std::string {
    if (std::string wrong = one_round(comm, rank, 3, 3); !wrong.empty()) return wrong;
    steps.arrive_and_wait();
    sleep_ms(1'500 * (2 - rank));
    const std::int64_t begin = now_ns();
    const auto result = tuttiCommDestroy(comm);
    const std::int64_t took_ms = (now_ns() - begin) / 1'000'000;
    if (result != tuttiSuccess) return failure("destroy", result, comm);
    return took_ms < kLongestMs[static_cast<std::size_t>(rank)]
               ? ""
               : "rank " + std::to_string(rank) + " has left after " + std::to_string(took_ms) + " ms";
  };
  job.run(body, [] {});
}

TEST_CASE("without the setting a broken connection is an error", "[threads]") {
  Job job(2, 0, 1);
  std::barrier<> steps(3);
  const auto body = [&](tuttiComm_t comm, int rank) -> std::string {
    if (std::string wrong = one_round(comm, rank, 2, 0); !wrong.empty()) return wrong;
    steps.arrive_and_wait();
    const std::int64_t begin = now_ns();
    if (reduce_until_error(comm) != tuttiRemoteError) return "no error";
    if ((now_ns() - begin) / 1'000'000 > kNoticeMs) return "the error is late";
    return contains(tuttiGetLastError(comm), "tcp connection") ? "" : tuttiGetLastError(comm);
  };
  job.run(body, [&] {
    steps.arrive_and_wait();
    job.connections().break_all(How::kEnd);
  });
  job.destroy();
}

TEST_CASE("a rank that is killed while its connections are made anew is named soon", "[processes]") {
  const Variables variables(60'000, 2);
  struct Shared {
    std::atomic<int> ready{0};
    std::atomic<pid_t> victim{0};
    std::atomic<std::int64_t> killed_ns{0};
  };
  const SharedMemory<Shared> shared;
  const auto outcomes = run_processes(3, "tcp", [&](tuttiComm_t comm, int rank, int) {
    const Connections connections;
    if (std::string wrong = one_round(comm, rank, 3, 0); !wrong.empty()) return Outcome{wrong};
    if (rank == 2) {
      shared->victim = ::getpid();
      ++shared->ready;
      for (;;) ::pause();
    }
    ++shared->ready;
    while (shared->ready != 3) sleep_ms(1);
    if (rank == 0) ::kill(shared->victim, SIGSTOP);
    sleep_ms(100);
    connections.break_all(How::kEnd);
    std::thread killer([&] {
      if (rank != 0) return;
      sleep_ms(1'000);
      shared->killed_ns = now_ns();
      ::kill(shared->victim, SIGKILL);
    });
    const tuttiResult_t result = reduce_until_error(comm);
    killer.join();
    const std::int64_t late_ms = (now_ns() - shared->killed_ns) / 1'000'000;
    const std::string text = describe(result, comm);
    if (result != tuttiRemoteError || !contains(text, "rank 2")) return Outcome{"another error: " + text};
    if (shared->killed_ns == 0) return Outcome{"an error before the death: " + text};
    return Outcome{late_ms < kNoticeMs ? "" : "noticed after " + std::to_string(late_ms) + " ms: " + text};
  });
  CHECK(contains(outcomes[2].wrong, "the process ended"));
  CHECK(outcomes[0].wrong == "");
  CHECK(outcomes[1].wrong == "");
}

}  // namespace tutti::internal::test
