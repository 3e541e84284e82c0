// The library's own threads leave the application's signals to the application.
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "catch_compat.h"
#include "tutti/tutti.h"

namespace {

// The mask of a thread of this process, as in proc(5): bit n - 1 is signal n.
std::uint64_t blocked_by(const std::filesystem::path& task) {
  std::ifstream status(task / "status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("SigBlk:", 0) == 0) return std::stoull(line.substr(7), nullptr, 16);
  }
  return UINT64_MAX;  // the thread has just ended
}

}  // namespace

TEST_CASE("signals reach none of the library's threads") {
  // Ranks that connect over sockets have a thread each for the control tree; queued operations start another, and the
  // unique id a third.
  ::setenv("TUTTI_TRANSPORTS", "tcp", 1);
  tuttiUniqueId id;
  REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
  std::array<tuttiComm_t, 2> comms{};
  tuttiResult_t other = tuttiInternalError;
  std::int32_t theirs = 1;
  std::thread rank_1([&] { other = tuttiCommInitRank(&comms[1], 2, id, 1); });
  REQUIRE(tuttiCommInitRank(&comms[0], 2, id, 0) == tuttiSuccess);
  rank_1.join();
  REQUIRE(other == tuttiSuccess);
  tuttiStream_t stream = nullptr;
  REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
  std::int32_t mine = 1;
  REQUIRE(tuttiAllReduce(&mine, &mine, 1, tuttiInt32, tuttiSum, comms[0], stream) == tuttiSuccess);
  int threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(::gettid())) continue;
    ++threads;
    for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGCHLD, SIGPROF, SIGIO}) {
      INFO("signal " << signal);
      CHECK((blocked_by(task.path()) >> (signal - 1) & 1) == 1);
    }
  }
  CHECK(threads >= 3);
  std::thread joins([&] { other = tuttiAllReduce(&theirs, &theirs, 1, tuttiInt32, tuttiSum, comms[1], nullptr); });
  REQUIRE(tuttiStreamDestroy(stream) == tuttiSuccess);
  joins.join();
  REQUIRE(other == tuttiSuccess);
  REQUIRE(mine == 2);
  std::thread leaves([&] { other = tuttiCommDestroy(comms[1]); });
  REQUIRE(tuttiCommDestroy(comms[0]) == tuttiSuccess);
  leaves.join();
  REQUIRE(other == tuttiSuccess);
}
