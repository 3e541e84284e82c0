// A schedule that the tests have not proven is proven inside the first operation, which whoever aborts need not wait
// for.
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <latch>
#include <thread>
#include <vector>

#include "faults.h"

namespace tutti::internal::test {
namespace {

// A ring of so many takes each rank about 20 ms to prove, all of them together seconds.
constexpr int kRanks = 150;

struct Job {
  Job() : comms(kRanks), results(kRanks) { REQUIRE(tuttiCommInitAll(comms.data(), kRanks, nullptr) == tuttiSuccess); }
  // Every rank runs its first operation, all at once, and `meanwhile` runs once all have begun. Returns the processor
  // time of all that.
  template <class Meanwhile>
  double run(Meanwhile meanwhile) {
    std::atomic<int> begun{0};
    std::latch start(kRanks + 1);
    std::vector<std::thread> threads;
    threads.reserve(comms.size());
    for (std::size_t rank = 0; rank < comms.size(); ++rank) {
      threads.emplace_back([&, rank] {
        float value = 1;
        start.arrive_and_wait();
        ++begun;
        results[rank] = tuttiAllReduce(&value, &value, 1, tuttiFloat32, tuttiSum, comms[rank], nullptr);
      });
    }
    const std::clock_t before = std::clock();
    start.arrive_and_wait();
    while (begun != kRanks) std::this_thread::yield();
    meanwhile();
    for (std::thread& thread : threads) thread.join();
    return static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  }

  std::vector<tuttiComm_t> comms;
  std::vector<tuttiResult_t> results;
};

}  // namespace

TEST_CASE("abort ends the proofs inside the first operation") {
  REQUIRE(::setenv("TUTTI_ALGORITHM", "ring", 1) == 0);
  Job whole;
  const double whole_s = whole.run([] {});
  for (const tuttiResult_t result : whole.results) CHECK(result == tuttiSuccess);
  Job aborted;
  const double aborted_s = aborted.run([&] { CHECK(tuttiCommAbort(aborted.comms[0]) == tuttiSuccess); });
  // A thread that had not quite begun finds that its handle has ended.
  CHECK((aborted.results[0] == tuttiAborted || aborted.results[0] == tuttiInvalidArgument));
  for (std::size_t rank = 1; rank < kRanks; ++rank) CHECK(aborted.results[rank] == tuttiAborted);
  // All but what was proven until all had begun.
  CHECK(aborted_s < whole_s / 2);
  for (const tuttiComm_t comm : whole.comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
  for (std::size_t rank = 1; rank < kRanks; ++rank) CHECK(tuttiCommDestroy(aborted.comms[rank]) == tuttiSuccess);
  CHECK(::unsetenv("TUTTI_ALGORITHM") == 0);
}

}  // namespace tutti::internal::test
