// A schedule that the tests have not proven is proven inside the first operation, by rank 0 for all. A rank that aborts
// does not wait for that.
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <latch>
#include <numeric>
#include <thread>
#include <vector>

#include "faults.h"

namespace tutti::internal::test {
namespace {

// A ring of this size takes about 30 ms to prove.
constexpr int kRanks = 150;
// The number of ranks that run the aborted operation.
constexpr int kInterrupted = 8;
// How often the abort may come too late.
constexpr int kAttempts = 20;

double thread_seconds() {
  timespec now{};
  if (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) std::abort();
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Job {
  Job() : comms(kRanks), results(kRanks) { REQUIRE(tuttiCommInitAll(comms.data(), kRanks, nullptr) == tuttiSuccess); }
  // The first `count` ranks run their first operation, all at once, and `meanwhile` runs once all of these have begun.
  // Returns the processor time of the operations' own threads, by rank.
  template <class Meanwhile>
  std::vector<double> run(int count, Meanwhile meanwhile) {
    std::atomic<int> begun{0};
    std::latch start(count + 1);
    std::vector<double> seconds(static_cast<std::size_t>(count));
    std::vector<std::thread> threads;
    threads.reserve(seconds.size());
    for (std::size_t rank = 0; rank < seconds.size(); ++rank) {
      threads.emplace_back([&, rank] {
        float value = 1;
        start.arrive_and_wait();
        ++begun;
        const double before = thread_seconds();
        results[rank] = tuttiAllReduce(&value, &value, 1, tuttiFloat32, tuttiSum, comms[rank], nullptr);
        seconds[rank] = thread_seconds() - before;
      });
    }
    start.arrive_and_wait();
    while (begun != count) std::this_thread::yield();
    meanwhile();
    for (std::thread& thread : threads) thread.join();
    return seconds;
  }

  std::vector<tuttiComm_t> comms;
  std::vector<tuttiResult_t> results;
};

}  // namespace

TEST_CASE("abort ends the proofs inside the first operation") {
  REQUIRE(::setenv("TUTTI_ALGORITHM", "ring", 1) == 0);
  Job whole;
  const std::vector<double> whole_s = whole.run(kRanks, [] {});
  for (const tuttiResult_t result : whole.results) CHECK(result == tuttiSuccess);
  // Rank 0 has proven the schedule, and no other rank has.
  CHECK(std::accumulate(whole_s.begin() + 1, whole_s.end(), 0.0) / (kRanks - 1) < whole_s[0] / 4);
  for (const tuttiComm_t comm : whole.comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
  // On a busy machine the aborting thread may run only when the proof is nearly over. So one of several attempts
  // counts.
  bool ended_early = false;
  for (int attempt = 0; attempt < kAttempts && !ended_early; ++attempt) {
    Job aborted;
    const std::vector<double> aborted_s =
        aborted.run(kInterrupted, [&] { CHECK(tuttiCommAbort(aborted.comms[0]) == tuttiSuccess); });
    // A thread that had not quite begun finds its handle ended.
    CHECK((aborted.results[0] == tuttiAborted || aborted.results[0] == tuttiInvalidArgument));
    for (std::size_t rank = 1; rank < kInterrupted; ++rank) CHECK(aborted.results[rank] == tuttiAborted);
    ended_early = aborted_s[0] < whole_s[0] / 2;
    for (std::size_t rank = 1; rank < kRanks; ++rank) CHECK(tuttiCommDestroy(aborted.comms[rank]) == tuttiSuccess);
  }
  CHECK(ended_early);
  CHECK(::unsetenv("TUTTI_ALGORITHM") == 0);
}

}  // namespace tutti::internal::test
