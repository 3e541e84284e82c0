// Survivor mode in streams, and in groups with calls of several communicators.
#include <unistd.h>

#include <csignal>
#include <vector>

#include "survivors.h"

namespace tutti::internal::test {
namespace {

constexpr int kRanks = 4;
constexpr int kVictim = 2;
constexpr std::int64_t kAll = 15;
constexpr std::int64_t kLiving = 11;

class OwnStream {
 public:
  OwnStream() { (void)tuttiStreamCreate(&stream_); }
  ~OwnStream() { (void)tuttiStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  [[nodiscard]] tuttiStream_t get() const { return stream_; }

 private:
  tuttiStream_t stream_ = nullptr;
};

std::int64_t bit_of(int rank) {
  return std::int64_t{1} << rank;
}

tuttiResult_t add(tuttiComm_t comm, std::int64_t* sum, tuttiStream_t stream = nullptr) {
  return tuttiAllReduce(sum, sum, 1, tuttiInt64, tuttiSum, comm, stream);
}

void require_alike_without_victim(const std::vector<Outcome>& outcomes) {
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == kVictim) continue;
    INFO("rank " << rank << ": " << outcomes[static_cast<std::size_t>(rank)].wrong);
    REQUIRE(outcomes[static_cast<std::size_t>(rank)].wrong == "");
    REQUIRE(outcomes[static_cast<std::size_t>(rank)].digest == outcomes[0].digest);
  }
}

}  // namespace

TEST_CASE("calls in a stream, and calls behind them, go on without a rank that dies", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const std::string transports = GENERATE("shm", "tcp");
  const StandardError silence;
  const auto outcomes = run_processes(kRanks, transports, [&](tuttiComm_t comm, int rank, int) {
    constexpr int kCalls = 200;
    const OwnStream stream;
    std::vector<std::int64_t> sums(kCalls, bit_of(rank));
    std::int64_t first = bit_of(rank);
    if (add(comm, &first) != tuttiSuccess || first != kAll) return Outcome{"the first call"};
    for (int number = 0; number < kCalls; ++number) {
      if (rank == kVictim && number == kCalls / 2) {
        sleep_ms(20);
        ::kill(::getpid(), SIGKILL);
      }
      if (add(comm, &sums[static_cast<std::size_t>(number)], stream.get()) != tuttiSuccess) {
        return Outcome{"not queued: " + std::string(tuttiGetLastError(comm))};
      }
    }
    std::int64_t behind = bit_of(rank);
    if (add(comm, &behind) != tuttiSuccess) return Outcome{"behind: " + std::string(tuttiGetLastError(comm))};
    if (tuttiStreamSynchronize(stream.get()) != tuttiSuccess) return Outcome{tuttiGetLastError(comm)};
    if (behind != kLiving || sums.back() != kLiving) return Outcome{"wrong sums"};
    if (contributors_of(comm) != static_cast<std::uint64_t>(kLiving)) return Outcome{"wrong contributors"};
    std::uint64_t with_all = 0;
    for (const std::int64_t sum : sums) {
      if (sum != kAll && sum != kLiving) return Outcome{"a wrong sum"};
      with_all += sum == kAll ? 1 : 0;
    }
    return Outcome{"", with_all};
  });
  require_alike_without_victim(outcomes);
}

TEST_CASE("groups with calls of two communicators, in any order, go on without a rank that dies", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const std::string transports = GENERATE("shm", "tcp");
  const StandardError silence;
  const auto outcomes = run_processes(kRanks, transports, [&](tuttiComm_t comm, int rank, int) {
    tuttiComm_t other = nullptr;
    if (tuttiCommSplit(comm, 0, rank, &other, nullptr) != tuttiSuccess) return Outcome{tuttiGetLastError(nullptr)};
    std::string wrong;
    std::uint64_t with_all = 0;  // calls of the first communicator, and 1000 times those of the other one
    for (int number = 0; number < 60 && wrong.empty(); ++number) {
      if (rank == kVictim && number == 30) ::kill(::getpid(), SIGKILL);
      std::int64_t first = bit_of(rank);
      std::int64_t second = bit_of(rank);
      (void)tuttiGroupStart();
      if (rank % 2 == 0) (void)add(comm, &first);
      (void)add(other, &second);
      if (rank % 2 != 0) (void)add(comm, &first);
      if (tuttiGroupEnd() != tuttiSuccess) wrong = tuttiGetLastError(nullptr);
      const auto is_right = [&](std::int64_t sum) { return sum == kLiving || (number <= 30 && sum == kAll); };
      with_all += (first == kAll ? 1U : 0U) + (second == kAll ? 1000U : 0U);
      if (wrong.empty() && !(is_right(first) && is_right(second))) wrong = "wrong sums in " + std::to_string(number);
    }
    (void)tuttiCommDestroy(other);
    return Outcome{wrong, with_all};
  });
  require_alike_without_victim(outcomes);
}

TEST_CASE("an abort ends the calls that are queued in streams", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const std::string transports = GENERATE("shm", "tcp");
  const SharedMemory<std::atomic<int>> aborted;
  const auto outcomes = run_processes(2, transports, [&](tuttiComm_t comm, int rank, int) {
    std::int64_t sum = 1;
    if (rank == 1) {
      await_count(*aborted.get(), 1);
      const tuttiResult_t result = add(comm, &sum);
      return Outcome{result == tuttiAborted ? "" : describe(result, comm)};
    }
    const OwnStream stream;
    std::vector<std::int64_t> sums(10, 1);
    for (std::int64_t& one : sums) {
      if (add(comm, &one, stream.get()) != tuttiSuccess) return Outcome{"not queued"};
    }
    sleep_ms(50);
    (void)tuttiCommAbort(comm);
    *aborted.get() = 1;
    const tuttiResult_t result = tuttiStreamSynchronize(stream.get());
    return Outcome{result == tuttiAborted ? "" : describe(result, nullptr)};
  });
  REQUIRE(outcomes[0].wrong == "destroy failed");  // the abort has freed it
  REQUIRE(outcomes[1].wrong == "");
}

TEST_CASE("a call in a stream that is late tells so, and later ones take part again", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const Variable limit("TUTTI_STRAGGLER_MS", "200");
  const StandardError silence;
  const auto outcomes = run_processes(kRanks, "shm", [&](tuttiComm_t comm, int rank, int) {
    const OwnStream stream;
    int late = 0;
    for (int number = 0; number < 20'000; ++number) {
      if (rank == kVictim && number == 20) sleep_ms(2000);
      if (rank != kVictim) sleep_ms(1);
      std::int64_t sum = bit_of(rank);
      if (add(comm, &sum, stream.get()) != tuttiSuccess) return Outcome{"not queued"};
      const tuttiResult_t result = tuttiStreamSynchronize(stream.get());
      if (result == tuttiTimeout && contains(tuttiGetLastError(nullptr), "this rank was late")) {
        ++late;
        continue;
      }
      if (result != tuttiSuccess) return Outcome{describe(result, nullptr)};
      late += sum != kAll ? 1 : 0;
      if (late != 0 && sum == kAll) return Outcome{"", static_cast<std::uint64_t>(number)};
    }
    return Outcome{"the ranks do not come together"};
  });
  REQUIRE(wrong_of(outcomes) == "");
  REQUIRE(same_digests(outcomes));
}

}  // namespace tutti::internal::test
