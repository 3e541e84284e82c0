// Survivor mode: collectives that go on without the ranks that die.
#include "survivors.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <random>

namespace tutti::internal::test {
namespace {

// What rank `from` contributes to call `number` for rank `to`.
std::int64_t value(int number, int from, int to = 0) {
  return (number + 1) * 10'000 + from * 100 + to;
}

constexpr std::int64_t kUntouched = -77;

// A call of one rank, and what must be in its buffer afterwards.
class Step {
 public:
  Step(tuttiComm_t comm, int number, int rank, int ranks)
      : comm_(comm), number_(number), rank_(rank), ranks_(ranks), root_(number / kKinds % ranks) {
    constexpr std::array<std::size_t, 4> kCounts = {1, 100, 3'000, 40'000};
    count_ = kCounts[static_cast<std::size_t>(number / 3) % kCounts.size()];
  }

  tuttiResult_t run() {
    const auto n = static_cast<std::size_t>(ranks_);
    recv_.assign(count_ * n * 2, kUntouched);
    switch (number_ % kKinds) {
      case 0: {  // in place
        std::fill_n(recv_.begin(), count_, value(number_, rank_));
        return tuttiAllReduce(recv_.data(), recv_.data(), count_, tuttiInt64, tuttiSum, comm_, nullptr);
      }
      case 1: {
        doubles_.assign(count_, static_cast<double>(value(number_, rank_)));
        averages_.assign(count_, 0);
        return tuttiAllReduce(doubles_.data(), averages_.data(), count_, tuttiFloat64, tuttiAvg, comm_, nullptr);
      }
      case 2: send_own(1); return tuttiAllGather(send_.data(), recv_.data(), count_, tuttiInt64, comm_, nullptr);
      case 3: {
        send_to_each();
        return tuttiReduceScatter(send_.data(), recv_.data(), count_, tuttiInt64, tuttiSum, comm_, nullptr);
      }
      case 4: send_to_each(); return tuttiAlltoAll(send_.data(), recv_.data(), count_, tuttiInt64, comm_, nullptr);
      case 5: {
        send_own(1);
        return tuttiBroadcast(send_.data(), recv_.data(), count_, tuttiInt64, root_, comm_, nullptr);
      }
      case 6: {
        send_own(1);
        return tuttiReduce(send_.data(), recv_.data(), count_, tuttiInt64, tuttiSum, root_, comm_, nullptr);
      }
      case 7: send_own(1); return tuttiGather(send_.data(), recv_.data(), count_, tuttiInt64, root_, comm_, nullptr);
      case 8: {
        send_to_each();
        return tuttiScatter(send_.data(), recv_.data(), count_, tuttiInt64, root_, comm_, nullptr);
      }
      case 9: send_own(1); return tuttiScan(send_.data(), recv_.data(), count_, tuttiInt64, tuttiSum, comm_, nullptr);
      case 10: {  // blocks of different counts with gaps between them
        for (int r = 0; r < ranks_; ++r) {
          counts_.push_back(static_cast<std::size_t>(r + 1));
          places_.push_back(static_cast<std::size_t>(r * (ranks_ + 2)));
        }
        recv_.assign(n * (n + 2), kUntouched);
        send_.assign(n, value(number_, rank_));
        return tuttiAllGatherV(send_.data(), static_cast<std::size_t>(rank_ + 1), recv_.data(), counts_.data(),
                               places_.data(), tuttiInt64, comm_, nullptr);
      }
      case 11: {
        for (int r = 0; r < ranks_; ++r) counts_.push_back(static_cast<std::size_t>(r + 1));
        for (int r = 0; r < ranks_; ++r)
          send_.insert(send_.end(), counts_[static_cast<std::size_t>(r)], value(number_, rank_, r));
        return tuttiReduceScatterV(send_.data(), recv_.data(), counts_.data(), tuttiInt64, tuttiSum, comm_, nullptr);
      }
      default: return tuttiBarrier(comm_, nullptr);
    }
  }

  // Empty if the buffers contain what they must with these contributors.
  [[nodiscard]] std::string check(std::uint64_t set) const {
    if (!is_in(set, rank_)) return "this rank does not contribute";
    std::int64_t sum = 0;
    std::int64_t sum_here = 0;
    std::int64_t prefix = 0;
    int contributors = 0;
    for (int r = 0; r < ranks_; ++r) {
      if (!is_in(set, r)) continue;
      sum += value(number_, r);
      sum_here += value(number_, r, rank_);
      if (r <= rank_) prefix += value(number_, r);
      ++contributors;
    }
    const auto all_are = [&](std::size_t begin, std::size_t n, std::int64_t wanted) {
      return std::all_of(recv_.begin() + static_cast<std::ptrdiff_t>(begin),
                         recv_.begin() + static_cast<std::ptrdiff_t>(begin + n),
                         [&](std::int64_t is) { return is == wanted; });
    };
    const auto blocks_are = [&](auto wanted_of) {
      for (int r = 0; r < ranks_; ++r) {
        const std::int64_t wanted = is_in(set, r) ? wanted_of(r) : kUntouched;
        if (!all_are(static_cast<std::size_t>(r) * count_, count_, wanted)) return false;
      }
      return true;
    };
    bool right = true;
    switch (number_ % kKinds) {
      case 0: right = all_are(0, count_, sum); break;
      case 1: {
        const double wanted = static_cast<double>(sum) / contributors;
        right = std::all_of(averages_.begin(), averages_.end(),
                            [&](double is) { return is > wanted - 1e-6 && is < wanted + 1e-6; });
        break;
      }
      case 2: right = blocks_are([&](int r) { return value(number_, r); }); break;
      case 3: right = all_are(0, count_, sum_here); break;
      case 4: right = blocks_are([&](int r) { return value(number_, r, rank_); }); break;
      case 5: right = all_are(0, count_, value(number_, root_)); break;
      case 6: right = all_are(0, count_, rank_ == root_ ? sum : kUntouched); break;
      case 7: {
        right = rank_ == root_ ? blocks_are([&](int r) { return value(number_, r); }) : all_are(0, count_, kUntouched);
        break;
      }
      case 8: right = all_are(0, count_, value(number_, root_, rank_)); break;
      case 9: right = all_are(0, count_, prefix); break;
      case 10: {
        std::vector<std::int64_t> wanted(recv_.size(), kUntouched);
        for (int r = 0; r < ranks_; ++r) {
          if (!is_in(set, r)) continue;
          std::fill_n(wanted.begin() + static_cast<std::ptrdiff_t>(places_[static_cast<std::size_t>(r)]), r + 1,
                      value(number_, r));
        }
        right = wanted == recv_;
        break;
      }
      case 11: right = all_are(0, static_cast<std::size_t>(rank_ + 1), sum_here); break;
      default: break;
    }
    return right ? "" : "call " + std::to_string(number_) + " has a wrong result";
  }

  [[nodiscard]] bool has_root() const { return number_ % kKinds >= 5 && number_ % kKinds <= 8; }
  [[nodiscard]] int root() const { return root_; }
  [[nodiscard]] bool is_untouched() const {
    return std::all_of(recv_.begin(), recv_.end(), [](std::int64_t is) { return is == kUntouched; });
  }

 private:
  static constexpr int kKinds = 13;
  void send_own(std::size_t blocks) { send_.assign(count_ * blocks, value(number_, rank_)); }
  void send_to_each() {
    for (int r = 0; r < ranks_; ++r) send_.insert(send_.end(), count_, value(number_, rank_, r));
  }

  tuttiComm_t comm_;
  int number_;
  int rank_;
  int ranks_;
  int root_;
  std::size_t count_ = 0;
  std::vector<std::int64_t> send_;
  std::vector<std::int64_t> recv_;
  std::vector<double> doubles_;
  std::vector<double> averages_;
  std::vector<std::size_t> counts_;
  std::vector<std::size_t> places_;
};

// Makes `calls` calls, and logs the contributors of each.
Outcome run_steps(tuttiComm_t comm, int rank, int ranks, int calls, Log* log) {
  for (int number = 0; number < calls; ++number) {
    Step step(comm, number, rank, ranks);
    const tuttiResult_t result = step.run();
    auto& logged = (*log)[static_cast<std::size_t>(number)][static_cast<std::size_t>(rank)];
    if (result == tuttiRemoteError && step.has_root()) {
      if (!contains(tuttiGetLastError(nullptr), "rank " + std::to_string(step.root()) + ", the root, has died")) {
        return {"call " + std::to_string(number) + ": " + describe(result, comm)};
      }
      if (!step.is_untouched()) return {"a call without its root has written"};
      logged = kRootDied;
      continue;
    }
    if (result != tuttiSuccess) return {"call " + std::to_string(number) + ": " + tuttiGetLastError(nullptr)};
    const std::uint64_t set = contributors_of(comm);
    logged = set;
    if (std::string wrong = step.check(set); !wrong.empty()) return {wrong};
  }
  tuttiResult_t error = tuttiInternalError;
  if (tuttiCommGetAsyncError(comm, &error) != tuttiSuccess || error != tuttiSuccess) return {"an asynchronous error"};
  const std::int64_t begin_ns = now_ns();
  if (tuttiCommFinalize(comm) != tuttiSuccess) return {std::string("finalize: ") + tuttiGetLastError(nullptr)};
  return {"", static_cast<std::uint64_t>((now_ns() - begin_ns) / 1'000'000)};
}

// All ranks that have completed a call have the same contributors; no rank comes back.
// `living`: the ranks that have completed the last call.
void require_same_contributors(const Log& log, int ranks, int calls, std::uint64_t living) {
  std::uint64_t before = ~std::uint64_t{0};
  for (int number = 0; number < calls; ++number) {
    std::uint64_t common = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::uint64_t set = log[static_cast<std::size_t>(number)][static_cast<std::size_t>(rank)];
      if (set == 0 && !is_in(living, rank)) continue;
      INFO("call " << number << ", rank " << rank << ": " << set << ", others " << common);
      REQUIRE(set != 0);
      if (common == 0) common = set;
      REQUIRE(set == common);
    }
    if (common == kRootDied) continue;
    REQUIRE((common & ~before) == 0);
    REQUIRE((living & ~common) == 0);
    before = common;
  }
  REQUIRE(before == living);
}

struct Deaths {
  std::string transports;
  int ranks;
  std::vector<int> victims;  // each dies at a random moment
  unsigned seed;
};

void require_gone_on(const Deaths& deaths, int calls) {
  INFO(deaths.transports << ", " << deaths.ranks << " ranks, seed " << deaths.seed);
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const SharedMemory<Log> log;
  const auto dies = [&](int rank) {
    return std::find(deaths.victims.begin(), deaths.victims.end(), rank) != deaths.victims.end();
  };
  const auto outcomes = run_processes(deaths.ranks, deaths.transports, [&](tuttiComm_t comm, int rank, int ranks) {
    std::mt19937 random(deaths.seed * 64 + static_cast<unsigned>(rank));
    const auto us = static_cast<std::int64_t>(random() % 40'000);
    std::thread assassin([&] {
      if (!dies(rank)) return;
      std::this_thread::sleep_for(std::chrono::microseconds(us));
      ::kill(::getpid(), SIGKILL);
    });
    Outcome outcome = run_steps(comm, rank, ranks, calls, log.get());
    while (dies(rank)) sleep_ms(1);  // it has completed all calls before its time
    assassin.join();
    return outcome;
  });
  std::uint64_t living = 0;
  for (int rank = 0; rank < deaths.ranks; ++rank) {
    INFO("rank " << rank);
    const bool completes = (*log.get())[static_cast<std::size_t>(calls - 1)][static_cast<std::size_t>(rank)] != 0;
    if (completes) living |= std::uint64_t{1} << rank;
    if (dies(rank)) continue;
    REQUIRE(outcomes[static_cast<std::size_t>(rank)].wrong == "");
  }
  require_same_contributors(*log.get(), deaths.ranks, calls, living);
}

}  // namespace

TEST_CASE("without deaths all ranks contribute to each collective", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  for (const char* transports : {"shm", "tcp"}) {
    for (const int ranks : {1, 2, 5}) {
      const SharedMemory<Log> log;
      const auto outcomes = run_processes(ranks, transports, [&](tuttiComm_t comm, int rank, int n) {
        return run_steps(comm, rank, n, 60, log.get());
      });
      REQUIRE(wrong_of(outcomes) == "");
      require_same_contributors(*log.get(), ranks, 60, (std::uint64_t{1} << ranks) - 1);
    }
  }
}

TEST_CASE("collectives go on with the same contributors on all ranks that live", "[processes]") {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    const std::string transports = seed % 2 != 0 ? "shm" : "tcp";
    require_gone_on({transports, 2, {static_cast<int>(seed / 2 % 2)}, seed}, kMostCalls);
    require_gone_on({transports, 4, {0}, seed}, kMostCalls);
    require_gone_on({transports, 5, {4, 1}, seed}, kMostCalls);
    require_gone_on({transports, 8, {0, 3, 5, 6}, seed}, kMostCalls);
  }
}

TEST_CASE("a revoke or an abort by one rank ends a collective of all, also after a death", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const bool aborts = GENERATE(false, true);
  const auto outcomes = run_processes(4, "shm", [&](tuttiComm_t comm, int rank, int) {
    if (rank == 3) ::kill(::getpid(), SIGKILL);
    std::int32_t one = 1;
    if (tuttiAllReduce(&one, &one, 1, tuttiInt32, tuttiSum, comm, nullptr) != tuttiSuccess || one != 3) {
      return Outcome{std::string("the first: ") + tuttiGetLastError(nullptr)};
    }
    if (rank == 0) {
      sleep_ms(100);
      const tuttiResult_t ended = aborts ? tuttiCommAbort(comm) : tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT);
      if (ended != tuttiSuccess) return Outcome{tuttiGetLastError(nullptr)};
      if (aborts) return Outcome{};
    }
    if (rank != 0) {
      const std::int64_t begin_ns = now_ns();
      const tuttiResult_t result = tuttiAllReduce(&one, &one, 1, tuttiInt32, tuttiSum, comm, nullptr);
      const std::string text = describe(result, comm);
      if (result != tuttiAborted || !contains(text, "rank 0")) return Outcome{text};
      if (now_ns() - begin_ns > kNoticeMs * 1'000'000) return Outcome{"the call ended late"};
    }
    tuttiResult_t error = tuttiSuccess;
    if (tuttiCommGetAsyncError(comm, &error) != tuttiSuccess || error != tuttiAborted) return Outcome{"no error"};
    if (aborts) return Outcome{};
    // The usual recovery, which rank 0 may begin while the others are still in the collective.
    tuttiComm_t smaller = nullptr;
    if (tuttiCommShrink(comm, nullptr, 0, &smaller, nullptr, TUTTI_SHRINK_DEFAULT) != tuttiSuccess) {
      return Outcome{std::string("shrink: ") + tuttiGetLastError(nullptr)};
    }
    one = 1;
    const bool right =
        tuttiAllReduce(&one, &one, 1, tuttiInt32, tuttiSum, smaller, nullptr) == tuttiSuccess && one == 3;
    (void)tuttiCommDestroy(smaller);
    return Outcome{right ? "" : "the smaller one does not work"};
  });
  REQUIRE(outcomes[0].wrong == (aborts ? "destroy failed" : ""));  // the abort has freed it
  for (const int rank : {1, 2}) REQUIRE(outcomes[static_cast<std::size_t>(rank)].wrong == "");
}

TEST_CASE("sends and receives, groups, splits and shrinks in survivor mode", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const auto outcomes = run_processes(4, "shm", [](tuttiComm_t comm, int rank, int ranks) {
    const auto exchange = [&](int to, int from) {
      std::int64_t own = rank;
      std::int64_t got = -1;
      std::int64_t sum = 1;
      tuttiResult_t result = tuttiGroupStart();
      if (result == tuttiSuccess) result = tuttiAllReduce(&sum, &sum, 1, tuttiInt64, tuttiSum, comm, nullptr);
      if (result == tuttiSuccess) result = tuttiSend(&own, 1, tuttiInt64, to, comm, nullptr);
      if (result == tuttiSuccess) result = tuttiRecv(&got, 1, tuttiInt64, from, comm, nullptr);
      const tuttiResult_t end = tuttiGroupEnd();
      if (result != tuttiSuccess || end != tuttiSuccess) return std::string(tuttiGetLastError(nullptr));
      int contributors = 0;
      (void)tuttiCommGetContributors(comm, nullptr, 0, &contributors);
      return std::string(got == from && sum == contributors ? "" : "wrong data");
    };
    if (std::string wrong = exchange((rank + 1) % ranks, (rank + 3) % ranks); !wrong.empty()) return Outcome{wrong};
    tuttiComm_t part = nullptr;
    if (tuttiCommSplit(comm, rank % 2, 0, &part, nullptr) != tuttiSuccess) return Outcome{tuttiGetLastError(nullptr)};
    if (rank == 2) ::kill(::getpid(), SIGKILL);
    std::int32_t one = 1;
    // The half of ranks 0 and 2 goes on as well.
    if (tuttiAllReduce(&one, &one, 1, tuttiInt32, tuttiSum, part, nullptr) != tuttiSuccess ||
        one != (rank == 0 ? 1 : 2)) {
      return Outcome{std::string("half: ") + tuttiGetLastError(nullptr)};
    }
    if (tuttiBarrier(comm, nullptr) != tuttiSuccess) return Outcome{tuttiGetLastError(nullptr)};
    const std::array<int, 4> next = {1, 3, -1, 0};
    const std::array<int, 4> before = {3, 0, -1, 1};
    const auto me = static_cast<std::size_t>(rank);
    if (std::string wrong = exchange(next[me], before[me]); !wrong.empty()) return Outcome{wrong};
    if (tuttiSend(&one, 1, tuttiInt32, 2, comm, nullptr) != tuttiRemoteError ||
        !contains(tuttiGetLastError(nullptr), "rank 2 has died")) {
      return Outcome{std::string("send to a dead rank: ") + tuttiGetLastError(nullptr)};
    }
    if (std::string wrong = exchange(next[me], before[me]); !wrong.empty()) return Outcome{wrong};
    tuttiComm_t none = nullptr;
    if (tuttiCommSplit(comm, 0, 0, &none, nullptr) != tuttiInvalidUsage || none != nullptr) return Outcome{"split"};
    tuttiComm_t smaller = nullptr;
    if (tuttiCommShrink(comm, nullptr, 0, &smaller, nullptr, TUTTI_SHRINK_DEFAULT) != tuttiSuccess) {
      return Outcome{tuttiGetLastError(nullptr)};
    }
    if (rank == 3) ::kill(::getpid(), SIGKILL);
    one = 1;
    if (tuttiAllReduce(&one, &one, 1, tuttiInt32, tuttiSum, smaller, nullptr) != tuttiSuccess || one != 2) {
      return Outcome{std::string("smaller: ") + tuttiGetLastError(nullptr)};
    }
    const bool right = contributors_of(smaller) == 3 && contributors_of(part) == (rank == 0 ? 1 : 3);
    for (const tuttiComm_t made : {part, smaller}) (void)tuttiCommDestroy(made);
    return Outcome{right ? "" : "wrong contributors"};
  });
  for (const int rank : {0, 1}) REQUIRE(outcomes[static_cast<std::size_t>(rank)].wrong == "");
}

TEST_CASE("a stopped rank is waited for, not left out", "[processes]") {
  const Variable survivors("TUTTI_SURVIVORS", "on");
  const SharedMemory<std::atomic<int>> pid;
  const auto outcomes = run_processes(3, "tcp", [&](tuttiComm_t comm, int rank, int) {
    if (rank == 1) *pid.get() = ::getpid();
    std::thread stopper([&] {
      if (rank != 0) return;
      while (*pid.get() == 0) sleep_ms(1);
      sleep_ms(20);
      ::kill(*pid.get(), SIGSTOP);
      sleep_ms(1500);
      ::kill(*pid.get(), SIGCONT);
    });
    const Deadline end = Deadline::after_ms(2500);
    std::string wrong;
    std::int32_t goes_on = 1;
    while (wrong.empty() && goes_on == 1) {
      goes_on = end.passed() ? 0 : 1;
      if (tuttiAllReduce(&goes_on, &goes_on, 1, tuttiInt32, tuttiMin, comm, nullptr) != tuttiSuccess) {
        wrong = tuttiGetLastError(nullptr);
      }
      if (wrong.empty() && contributors_of(comm) != 7) wrong = "a rank was left out";
    }
    stopper.join();
    return Outcome{wrong};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("rank 0 decides on survivor mode", "[threads]") {
  const auto outcomes = run_threads(2, "tcp", [](tuttiComm_t comm, int rank, int) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.survivors = rank == 0 ? "on" : "off";
    tuttiComm_t surviving = nullptr;
    if (tuttiCommSplit(comm, 0, 0, &surviving, &config) != tuttiSuccess) return Outcome{tuttiGetLastError(nullptr)};
    std::int32_t one = 1;
    config.survivors = "perhaps";
    tuttiComm_t none = nullptr;
    if (tuttiCommSplit(comm, 0, 0, &none, &config) != tuttiInvalidArgument) return Outcome{"a wrong value"};
    int count = -1;
    if (tuttiCommGetContributors(surviving, nullptr, 0, nullptr) != tuttiInvalidArgument ||
        tuttiCommGetContributors(surviving, nullptr, 1, &count) != tuttiInvalidArgument ||
        tuttiCommGetContributors(comm, nullptr, 0, &count) != tuttiSuccess || count != 2) {
      return Outcome{"contributors"};
    }
    const bool right = tuttiAllReduce(&one, &one, 1, tuttiInt32, tuttiSum, surviving, nullptr) == tuttiSuccess;
    (void)tuttiCommDestroy(surviving);
    return Outcome{right && one == 2 ? "" : "wrong data"};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

}  // namespace tutti::internal::test
