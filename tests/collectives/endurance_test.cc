// The costs of a job: to start and end, to keep idle, and to run for long. Figures are printed; the limits are far
// above them, except where any growth would be a leak.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <string>
#include <thread>

#include "catch_compat.h"
#include "job.h"
#include "os/clock.h"

namespace tutti::internal::test {
namespace {

constexpr int kManyRanks = 64;
constexpr std::int64_t kStartLimitMs = 60'000;
constexpr std::int64_t kIdleLimitKib = 4096;
constexpr std::int64_t kGrowthLimitKib = 256;
constexpr int kOperations = 40'000;
// The least that malloc takes. If an operation of one of the four kinds leaked it each time, the growth would be beyond
// the limit.
constexpr int kLeastLeakBytes = 32;
constexpr int kKinds = 4;
static_assert(kOperations / kKinds * kLeastLeakBytes > kGrowthLimitKib * 1024);

struct MemoryUse {
  std::int64_t rss_kib = 0;
  std::int64_t pss_kib = 0;  // shared pages divided by the number of processes that share them
};

MemoryUse memory_use() {
  std::ifstream file("/proc/self/smaps_rollup");
  MemoryUse use;
  std::string word;
  while (file >> word) {
    if (word == "Rss:") file >> use.rss_kib;
    if (word == "Pss:") file >> use.pss_kib;
  }
  return use;
}

// Number and target of each, except the one that reads the directory.
std::set<std::string> open_descriptors() {
  std::set<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone && target.native().rfind("/proc/", 0) != 0)
      all.insert(entry.path().filename().native() + " " + target.native());
  }
  return all;
}

// Descriptors opened since; closed ones are not a leak.
std::string opened_since(const std::set<std::string>& before) {
  std::string opened;
  for (const std::string& descriptor : open_descriptors()) {
    if (!before.contains(descriptor)) opened += "descriptor " + descriptor + " is still open; ";
  }
  return opened;
}

std::string one_sum(tuttiComm_t comm, std::vector<float>& data, int ranks) {
  std::fill(data.begin(), data.end(), 1.0F);
  if (tuttiAllReduce(data.data(), data.data(), data.size(), tuttiFloat32, tuttiSum, comm, nullptr) != tuttiSuccess) {
    return tuttiGetLastError(comm);
  }
  const auto wanted = static_cast<float>(ranks);
  return std::all_of(data.begin(), data.end(), [&](float f) { return f == wanted; }) ? "" : "wrong sum";
}

// The state that the processes of an idle job share, besides the job.
struct InProcessControl {
  std::array<std::atomic<int>, 3> arrived;
  tuttiUniqueId id;
  std::array<MemoryUse, kManyRanks> before;
  std::array<MemoryUse, kManyRanks> after;

  // All processes are alive and in the same state when they measure their memory: shared pages count equally.
  bool meet(std::size_t place) {
    ++arrived[place];
    const Deadline deadline = Deadline::after_ms(kStartLimitMs);
    while (arrived[place] < kManyRanks && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return arrived[place] == kManyRanks;
  }
};

// The exit status of one rank of the idle job: where it failed, or 0.
int be_idle(InProcessControl& board, int rank) {
  if (!board.meet(0)) return 1;
  board.before[static_cast<std::size_t>(rank)] = memory_use();
  if (rank == 0 && tuttiGetUniqueId(&board.id) != tuttiSuccess) return 2;
  if (!board.meet(1)) return 3;
  tuttiComm_t comm = nullptr;
  if (tuttiCommInitRank(&comm, kManyRanks, board.id, rank) != tuttiSuccess) return 4;
  std::vector<float> data(2);
  if (!one_sum(comm, data, kManyRanks).empty()) return 5;
  if (tuttiBarrier(comm, nullptr) != tuttiSuccess) return 6;
  board.after[static_cast<std::size_t>(rank)] = memory_use();
  if (!board.meet(2)) return 7;
  return tuttiCommDestroy(comm) == tuttiSuccess ? 0 : 8;
}

void check_idle_memory(InProcessControl& board) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < kManyRanks; ++rank) {
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) ::_exit(be_idle(board, rank));
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    CHECK((WIFEXITED(status) ? WEXITSTATUS(status) : -1) == 0);
  }
  std::int64_t total = 0;
  std::int64_t most = 0;
  for (std::size_t r = 0; r < kManyRanks; ++r) {
    const std::int64_t growth = board.after[r].pss_kib - board.before[r].pss_kib;
    total += growth;
    most = std::max(most, growth);
  }
  std::printf("idle communicator of %d ranks: %lld KiB per rank, at most %lld KiB\n", kManyRanks,
              static_cast<long long>(total / kManyRanks), static_cast<long long>(most));
  std::fflush(stdout);
  CHECK(total > 0);
  CHECK(total / kManyRanks < kIdleLimitKib);
}

// Small operations of every kind, each checked by its effect on the next.
std::string run_operations(tuttiComm_t comm, int rank, int operations) {
  std::array<float, 512> data{};
  std::array<float, 1024> all{};
  for (int i = 0; i < operations; ++i) {
    const std::size_t count = i % 2 == 0 ? 2 : data.size();
    data.fill(static_cast<float>(rank));
    tuttiResult_t result = tuttiSuccess;
    switch (i % kKinds) {
      case 0:
      case 1: result = tuttiAllReduce(data.data(), data.data(), count, tuttiFloat32, tuttiSum, comm, nullptr); break;
      case 2: result = tuttiAllGather(data.data(), all.data(), count, tuttiFloat32, comm, nullptr); break;
      default: result = tuttiBroadcast(data.data(), data.data(), count, tuttiFloat32, 1, comm, nullptr); break;
    }
    if (result != tuttiSuccess) return tuttiGetLastError(comm);
    const float got = i % kKinds == 2 ? all[count] : data[count - 1];
    if (got != 1) return "operation " + std::to_string(i) + " has a wrong result";
  }
  return {};
}

Outcome endure(tuttiComm_t comm, int rank, const std::string& transports) {
  if (std::string wrong = run_operations(comm, rank, 2000); !wrong.empty()) return Outcome{wrong};
  // The measurement also touches code and buffers for the first time.
  static_cast<void>(memory_use());
  static_cast<void>(open_descriptors());
  const MemoryUse before = memory_use();
  const std::set<std::string> descriptors = open_descriptors();
  const std::int64_t begin_ns = now_ns();
  if (std::string wrong = run_operations(comm, rank, kOperations); !wrong.empty()) return Outcome{wrong};
  const std::int64_t took_ns = now_ns() - begin_ns;
  const MemoryUse after = memory_use();
  if (rank == 0) {
    std::printf("%s: %d operations, %.2f us each; Rss %lld to %lld KiB\n", transports.c_str(), kOperations,
                static_cast<double>(took_ns) / 1000 / kOperations, static_cast<long long>(before.rss_kib),
                static_cast<long long>(after.rss_kib));
    std::fflush(stdout);
  }
  if (std::string opened = opened_since(descriptors); !opened.empty()) return Outcome{opened};
  // Not the proportional share: it grows when a process that maps the same libraries ends.
  const std::int64_t growth = after.rss_kib - before.rss_kib;
  return Outcome{growth <= kGrowthLimitKib ? "" : "memory grew by " + std::to_string(growth) + " KiB"};
}

}  // namespace

TEST_CASE("64 processes start, sum 1 MiB and end") {
  const std::int64_t begin_ns = now_ns();
  const auto outcomes = run_processes(kManyRanks, "shm,tcp", [](tuttiComm_t comm, int, int ranks) {
    std::vector<float> data((std::size_t{1} << 20) / sizeof(float));
    return Outcome{one_sum(comm, data, ranks)};
  });
  const std::int64_t took_ms = (now_ns() - begin_ns) / 1'000'000;
  std::printf("%d processes started, summed 1 MiB and ended in %lld ms\n", kManyRanks, static_cast<long long>(took_ms));
  std::fflush(stdout);  // or the processes that are forked next would print it again
  REQUIRE(wrong_of(outcomes) == "");
  REQUIRE(took_ms < kStartLimitMs);
}

TEST_CASE("an idle rank costs little memory") {
  void* const memory =
      ::mmap(nullptr, sizeof(InProcessControl), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  ::setenv("TUTTI_TRANSPORTS", "shm,tcp", 1);
  check_idle_memory(*new (memory) InProcessControl{});
  ::munmap(memory, sizeof(InProcessControl));
}

TEST_CASE("forty thousand operations leave nothing behind") {
  for (const char* transports : {"shm", "tcp"}) {
    const auto outcomes =
        run_processes(2, transports, [&](tuttiComm_t comm, int rank, int) { return endure(comm, rank, transports); });
    INFO(transports);
    CHECK(wrong_of(outcomes) == "");
  }
}

}  // namespace tutti::internal::test
