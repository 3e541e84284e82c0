// A failed operation returns its buffers: no peer reads or writes them any more, so the caller may free or use them at
// once.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <functional>
#include <span>

#include "faults.h"

namespace tutti::internal::test {
namespace {

constexpr std::size_t kCount = std::size_t{24} << 20;
constexpr std::size_t kBytes = kCount * sizeof(float);

float* map_memory() {
  void* p = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<float*>(p);
}

using Call = std::function<tuttiResult_t(const float* in, float* out, tuttiComm_t comm, int ranks)>;

tuttiResult_t all_reduce(const float* in, float* out, tuttiComm_t comm, int) {
  return tuttiAllReduce(in, out, kCount, tuttiFloat32, tuttiSum, comm, nullptr);
}
tuttiResult_t broadcast(const float* in, float* out, tuttiComm_t comm, int) {
  return tuttiBroadcast(in, out, kCount, tuttiFloat32, 0, comm, nullptr);
}
tuttiResult_t all_gather(const float* in, float* out, tuttiComm_t comm, int ranks) {
  return tuttiAllGather(in, out, kCount / static_cast<std::size_t>(ranks), tuttiFloat32, comm, nullptr);
}

// Every rank calls once and unmaps its buffers as soon as the call has returned: a peer that still touched them would
// end the process. Returns whether the abort came in time for all.
bool abort_in_the_middle(const Call& call, int ranks, int after_ms) {
  std::vector<tuttiComm_t> comms(static_cast<std::size_t>(ranks), nullptr);
  ::setenv("TUTTI_TRANSPORTS", "shm", 1);
  REQUIRE(tuttiCommInitAll(comms.data(), ranks, nullptr) == tuttiSuccess);
  std::vector<tuttiResult_t> results(comms.size(), tuttiSuccess);
  std::atomic<int> calling{0};
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] {
      float* in = map_memory();
      float* out = map_memory();
      if (in == nullptr || out == nullptr) std::abort();
      ++calling;
      results[r] = call(in, out, comms[r], ranks);
      ::munmap(in, kBytes);
      ::munmap(out, kBytes);
    });
  }
  while (calling < ranks) std::this_thread::yield();
  sleep_ms(after_ms);
  CHECK(tuttiCommAbort(comms[0]) == tuttiSuccess);
  for (std::thread& t : threads) t.join();
  for (std::size_t r = 1; r < comms.size(); ++r) CHECK(tuttiCommDestroy(comms[r]) == tuttiSuccess);
  for (const tuttiResult_t result : results) {
    INFO(tuttiGetErrorString(result));
    CHECK((result == tuttiSuccess || result == tuttiAborted));
  }
  return std::none_of(results.begin(), results.end(), [](tuttiResult_t r) { return r == tuttiSuccess; });
}

}  // namespace

TEST_CASE("threads get their buffers back when one aborts") {
  int aborted = 0;
  for (const int ranks : {2, 3, 4}) {
    for (int after_ms = 2; after_ms <= 30; after_ms += 4) {
      for (const Call& call : {Call(all_reduce), Call(broadcast), Call(all_gather)}) {
        if (abort_in_the_middle(call, ranks, after_ms)) ++aborted;
      }
    }
  }
  std::printf("%d of 72 operations were aborted in the middle\n", aborted);
  REQUIRE(aborted > 0);
}

// Of three ranks one is killed: the others notice at different times, and none may write into the output of one that
// has noticed already.
TEST_CASE("nothing is written into the output of a failed operation") {
  for (int round = 0; round < 6; ++round) {
    const auto outcomes = run_processes(3, "shm", [&](tuttiComm_t comm, int rank, int ranks) {
      void* in = nullptr;
      void* out = nullptr;
      if (tuttiMemAlloc(&in, kBytes) != tuttiSuccess || tuttiMemAlloc(&out, kBytes) != tuttiSuccess) {
        return Outcome{"no memory"};
      }
      std::thread assassin;
      if (rank == 2) {
        assassin = std::thread([&] {
          sleep_ms(150 + 7 * round);
          ::kill(::getpid(), SIGKILL);
        });
      }
      tuttiResult_t result = tuttiSuccess;
      while (result == tuttiSuccess) {
        result = all_reduce(static_cast<const float*>(in), static_cast<float*>(out), comm, ranks);
      }
      const std::span<float> values(static_cast<float*>(out), kCount);
      std::fill(values.begin(), values.end(), 7.0F);
      sleep_ms(50);
      const bool kept = std::all_of(values.begin(), values.end(), [](float v) { return v == 7.0F; });
      if (assassin.joinable()) assassin.join();
      return Outcome{kept ? "" : "somebody wrote into the output"};
    });
    for (const std::size_t r : {0U, 1U}) REQUIRE(outcomes[r].wrong == "");
  }
}

}  // namespace tutti::internal::test
