// Ranks that never come, leave, or abort; and unauthenticated peers.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "collectives/specs.h"
#include "faults.h"
#include "os/unique_fd.h"

namespace tutti::internal::test {
namespace {

tuttiResult_t sum_one(tuttiComm_t comm) {
  float v = 1;
  return tuttiAllReduce(&v, &v, 1, tuttiFloat32, tuttiSum, comm, nullptr);
}

// Repeats until an error, which must be `wanted`, and returns what is wrong with it.
std::string expect_error(tuttiComm_t comm, tuttiResult_t wanted, const std::string& in_text) {
  const Deadline deadline = Deadline::after_ms(20'000);
  tuttiResult_t result = tuttiSuccess;
  while (result == tuttiSuccess && !deadline.passed()) result = sum_one(comm);
  const std::string text = describe(result, comm);
  return result == wanted && contains(text, in_text) ? "" : text;
}

// Before the others, which call more: this rank learns of that, unless the others need more than a second to detect it.
Outcome leave(tuttiComm_t comm) {
  const tuttiResult_t result = tuttiCommFinalize(comm);
  return Outcome{result == tuttiSuccess || result == tuttiMismatch ? "" : describe(result, comm)};
}

std::vector<tuttiComm_t> make_all(int ranks, const char* transports) {
  ::setenv("TUTTI_TRANSPORTS", transports, 1);
  std::vector<tuttiComm_t> comms(static_cast<std::size_t>(ranks), nullptr);
  REQUIRE(tuttiCommInitAll(comms.data(), ranks, nullptr) == tuttiSuccess);
  return comms;
}

}  // namespace

TEST_CASE("a rank that never comes is a timeout") {
  const Timeout timeout(300);
  for (const char* transports : {"shm", "tcp"}) {
    for (const int ranks : {2, 3}) {
      const auto outcomes = run_threads(ranks, transports, [](tuttiComm_t comm, int rank, int n) {
        if (rank == n - 1) {
          sleep_ms(1500);
          const tuttiResult_t late = sum_one(comm);
          return Outcome{late == tuttiTimeout ? "" : "the late rank got " + describe(late, comm)};
        }
        const tuttiResult_t result = sum_one(comm);
        return Outcome{result == tuttiTimeout ? "" : describe(result, comm)};
      });
      INFO(transports << " " << ranks);
      REQUIRE(wrong_of(outcomes) == "");
    }
  }
}

TEST_CASE("a slow rank is not a timeout") {
  const Timeout timeout(20'000);
  const auto outcomes = run_threads(3, "shm", [](tuttiComm_t comm, int rank, int) {
    if (rank == 1) sleep_ms(700);
    const tuttiResult_t result = sum_one(comm);
    return Outcome{result == tuttiSuccess ? "" : describe(result, comm)};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("a rank whose part is done may leave") {
  for (const char* transports : {"shm", "tcp", "sim:4"}) {
    const auto outcomes = run_threads(3, transports, [](tuttiComm_t comm, int rank, int) {
      // Both others send to rank 0; rank 2 comes late, when rank 1 has long left.
      if (rank == 2) sleep_ms(1000);
      float v = 2;
      const tuttiResult_t result = tuttiReduce(&v, &v, 1, tuttiFloat32, tuttiSum, 0, comm, nullptr);
      if (result != tuttiSuccess) return Outcome{describe(result, comm)};
      return Outcome{rank != 0 || v == 6 ? "" : "wrong sum"};
    });
    INFO(transports);
    CHECK(wrong_of(outcomes) == "");
  }
}

TEST_CASE("calling a rank that has left is a mismatch that says after how many operations") {
  for (const char* transports : {"shm", "tcp", "sim:4"}) {
    for (const int ranks : {2, 3}) {
      const auto outcomes = run_threads(ranks, transports, [](tuttiComm_t comm, int rank, int n) {
        const tuttiResult_t first = sum_one(comm);
        const std::string text = describe(first, comm);
        // Of three ranks, one may be in its second call and report the failure while another is in its first.
        const bool told = n > 2 && rank != 1 && first == tuttiMismatch && contains(text, "rank 1 has left after 1 op");
        if (first != tuttiSuccess && !told) return Outcome{"the first call failed: " + text};
        if (rank == 1) return leave(comm);
        return Outcome{expect_error(comm, tuttiMismatch, "rank 1 has left after 1 operation")};
      });
      INFO(transports << " " << ranks);
      CHECK(wrong_of(outcomes) == "");
    }
  }
}

TEST_CASE("processes notice which rank has left") {
  for (const char* transports : {"shm", "tcp"}) {
    const auto outcomes = run_processes(3, transports, [](tuttiComm_t comm, int rank, int) {
      if (rank == 1) return leave(comm);
      return Outcome{expect_error(comm, tuttiMismatch, "rank 1 has left after 0 operations")};
    });
    INFO(transports);
    CHECK(wrong_of(outcomes) == "");
  }
}

TEST_CASE("every rank notices that one has left, also a rank that waits for others and hears nothing from the tree") {
  const Timeout timeout(10'000);
  struct Reached {
    std::atomic<int> first{0};
    std::atomic<int> second{0};
  };
  const auto wait_for = [](const std::atomic<int>& count, int ranks) {
    const Deadline deadline = Deadline::after_ms(20'000);
    while (count < ranks && !deadline.passed()) sleep_ms(1);
  };
  for (const char* transports : {"shm", "tcp"}) {
    const SharedMemory<Reached> reached;
    const auto outcomes = run_processes(4, transports, [&](tuttiComm_t comm, int rank, int n) {
      if (sum_one(comm) != tuttiSuccess) return Outcome{tuttiGetLastError(comm)};
      // Rank 0 has left for good when the others continue.
      if (rank == 0) {
        Outcome outcome = leave(comm);
        ++reached->first;
        return outcome;
      }
      wait_for(reached->first, 1);
      Outcome outcome{expect_error(comm, tuttiMismatch, "rank 0 has left after 1 operation")};
      // Peers notice that a rank destroys its communicator.
      ++reached->second;
      wait_for(reached->second, n - 1);
      return outcome;
    });
    INFO(transports);
    CHECK(wrong_of(outcomes) == "");
  }
}

TEST_CASE("abort ends an operation of another thread, here and on the peers") {
  // Returns false if rank 0's thread called only after the abort, which a loaded machine makes possible.
  const auto abort_meets_operation = [](const char* transports, std::size_t count) {
    const auto comms = make_all(3, transports);
    std::vector<std::string> wrong(2);
    std::atomic<int> calling{0};
    std::atomic<bool> late{false};
    std::vector<std::thread> callers;
    for (std::size_t r = 0; r < 2; ++r) {
      callers.emplace_back([&, r] {
        std::vector<float> v(count, 1);
        ++calling;
        const tuttiResult_t result =
            tuttiAllReduce(v.data(), v.data(), count, tuttiFloat32, tuttiSum, comms[r], nullptr);
        if (r == 0 && result == tuttiInvalidArgument) late = true;
        // The abort frees rank 0's communicator: its text belongs to the thread.
        if (result != tuttiAborted) wrong[r] = describe(result, nullptr);
      });
    }
    while (calling < 2) sleep_ms(1);
    sleep_ms(150);
    const std::int64_t begin = now_ns();
    REQUIRE(tuttiCommAbort(comms[0]) == tuttiSuccess);
    const std::int64_t ms = (now_ns() - begin) / 1'000'000;
    for (std::thread& t : callers) t.join();
    INFO(transports << ", count " << count << ", abort took " << ms << " ms");
    if (!late) CHECK(wrong[0] == "");
    CHECK(wrong[1] == "");
    CHECK(ms < kNoticeMs);
    CHECK(sum_one(comms[2]) == tuttiAborted);
    REQUIRE(tuttiCommDestroy(comms[1]) == tuttiSuccess);
    REQUIRE(tuttiCommAbort(comms[2]) == tuttiSuccess);
    return !late;
  };
  for (const char* transports : {"shm", "tcp", "sim:4"}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{1} << 20}) {
      int tries = 1;
      while (!abort_meets_operation(transports, count) && tries < 20) ++tries;
      CHECK(tries < 20);
    }
  }
}

TEST_CASE("abort ends queued operations") {
  const auto comms = make_all(2, "shm");
  tuttiStream_t stream = nullptr;
  REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
  std::vector<float> v(1000, 1);
  for (int i = 0; i < 5; ++i) {
    REQUIRE(tuttiAllReduce(v.data(), v.data(), v.size(), tuttiFloat32, tuttiSum, comms[0], stream) == tuttiSuccess);
  }
  sleep_ms(50);
  REQUIRE(tuttiCommAbort(comms[0]) == tuttiSuccess);
  REQUIRE(tuttiStreamSynchronize(stream) == tuttiAborted);
  REQUIRE(tuttiStreamDestroy(stream) == tuttiSuccess);
  CHECK(sum_one(comms[1]) == tuttiAborted);
  REQUIRE(tuttiCommDestroy(comms[1]) == tuttiSuccess);
}

TEST_CASE("a rank that is missing from the initialisation is named") {
  ::setenv("TUTTI_TRANSPORTS", "shm,tcp", 1);
  tuttiUniqueId id;
  REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
  std::vector<std::string> texts(3);
  std::vector<std::thread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
      config.init_timeout_ms = 1000;
      tuttiComm_t comm = nullptr;
      const tuttiResult_t result = tuttiCommInitRankConfig(&comm, 3, id, rank, &config);
      texts[static_cast<std::size_t>(rank)] = std::to_string(result) + " " + tuttiGetLastError(nullptr);
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::size_t rank : {0U, 2U}) {
    INFO("rank " << rank << ": " << texts[rank]);
    CHECK(contains(texts[rank], std::to_string(tuttiTimeout) + " "));
    CHECK(contains(texts[rank], "rank 1"));
  }
}

TEST_CASE("a warning says where a rank looks for a job that is not there") {
  StandardError captured;
  ::setenv("TUTTI_RANK", "1", 1);
  ::setenv("TUTTI_WORLD_SIZE", "2", 1);
  ::setenv("TUTTI_ROOT", "127.0.0.1:9", 1);
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.init_timeout_ms = 3000;
  config.wait_notice_ms = 500;
  tuttiComm_t comm = nullptr;
  const tuttiResult_t result = tuttiCommInitEnv(&comm, &config);
  for (const char* name : {"TUTTI_RANK", "TUTTI_WORLD_SIZE", "TUTTI_ROOT"}) ::unsetenv(name);
  const std::string text = captured.take();
  INFO(text);
  CHECK(result == tuttiTimeout);
  CHECK(occurrences(text, "rank 1 of 2 has looked for the root service ") == 1);
  CHECK(contains(text, "127.0.0.1:9"));
}

TEST_CASE("a warning names the ranks that have not joined") {
  ::setenv("TUTTI_TRANSPORTS", "shm,tcp", 1);
  ::setenv("TUTTI_WAIT_NOTICE_MS", "500", 1);
  StandardError captured;
  tuttiUniqueId id;
  REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
  ::unsetenv("TUTTI_WAIT_NOTICE_MS");
  std::vector<std::thread> threads;
  std::vector<tuttiResult_t> results(5, tuttiInternalError);
  for (int rank = 0; rank < 5; ++rank) {
    threads.emplace_back([&, rank] {
      if (rank == 1 || rank == 3 || rank == 4) sleep_ms(3000);
      tuttiComm_t comm = nullptr;
      results[static_cast<std::size_t>(rank)] = tuttiCommInitRank(&comm, 5, id, rank);
      if (comm != nullptr) (void)tuttiCommDestroy(comm);
    });
  }
  for (std::thread& t : threads) t.join();
  const std::string text = captured.take();
  INFO(text);
  for (const tuttiResult_t result : results) CHECK(result == tuttiSuccess);
  CHECK(occurrences(text, "tuttiCommInitRank has waited") == 1);
  CHECK(occurrences(text, " for ranks 1, 3, 4 of 5 to join\n") == 1);
}

namespace {

// A connection to a port of this host; invalid: no process listens there.
UniqueFd connect_to(int port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 ? std::move(fd) : UniqueFd();
}

}  // namespace

TEST_CASE("unauthenticated peers at the ports stop nothing") {
  const int low = 21'000 + static_cast<int>(::getpid()) % 20'000;
  const std::string range = std::to_string(low) + "-" + std::to_string(low + 60);
  ::setenv("TUTTI_PORT_RANGE", range.c_str(), 1);
  const auto comms = make_all(4, "tcp");
  ::unsetenv("TUTTI_PORT_RANGE");
  std::atomic<bool> stop{false};
  std::atomic<int> reached{0};
  std::thread strangers([&] {
    std::vector<UniqueFd> held;
    const std::string garbage(3000, '\x17');
    for (int round = 0; !stop && round < 200; ++round) {
      const int port = low + round % 61;
      UniqueFd fd = connect_to(port);
      if (!fd.valid()) continue;
      ++reached;
      // Some send nothing and keep the connection, some send data, some close it.
      if (round % 3 != 0) (void)::send(fd.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (round % 3 != 2) held.push_back(std::move(fd));
    }
    while (!stop) sleep_ms(5);
  });
  const Deadline deadline = Deadline::after_ms(10'000);
  while (reached < 4 && !deadline.passed()) sleep_ms(5);
  CHECK(reached >= 4);
  std::vector<std::string> wrong(comms.size());
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    ranks.emplace_back([&, r] { wrong[r] = Runner(comms[r], static_cast<int>(r), 4).run_all(every_root(4)); });
  }
  for (std::thread& t : ranks) t.join();
  stop = true;
  strangers.join();
  INFO(reached << " strangers");
  for (const std::string& w : wrong) CHECK(w == "");
  for (const tuttiComm_t comm : comms) REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("ranks that compute close the connections of unauthenticated peers at all their ports") {
  constexpr std::size_t kRanks = 2;
  const int low = 21'000 + static_cast<int>(::getpid()) % 20'000;
  const std::string range = std::to_string(low) + "-" + std::to_string(low + 20);
  ::setenv("TUTTI_TRANSPORTS", "tcp", 1);
  ::setenv("TUTTI_PORT_RANGE", range.c_str(), 1);
  tuttiUniqueId id;
  REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
  std::vector<tuttiComm_t> comms(kRanks);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] { (void)tuttiCommInitRank(&comms[rank], kRanks, id, static_cast<int>(rank)); });
  }
  for (std::thread& t : threads) t.join();
  ::unsetenv("TUTTI_PORT_RANGE");
  for (const tuttiComm_t comm : comms) REQUIRE(comm != nullptr);
  std::vector<UniqueFd> held;
  for (int port = low; port <= low + 20; ++port) {
    if (UniqueFd fd = connect_to(port); fd.valid()) held.push_back(std::move(fd));
  }
  CHECK(held.size() >= 2 * kRanks);  // of each rank: for the control tree and for data
  const Deadline deadline = Deadline::after_ms(30'000);
  std::size_t open = held.size();
  while (open > 0 && !deadline.passed()) {
    sleep_ms(50);
    open = 0;
    for (const UniqueFd& fd : held) {
      char byte = 0;
      if (::recv(fd.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN) ++open;
    }
  }
  CHECK(open == 0);
  for (const tuttiComm_t comm : comms) CHECK(tuttiCommAbort(comm) == tuttiSuccess);
}

}  // namespace tutti::internal::test
