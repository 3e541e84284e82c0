// Measures the possible gain of group lanes: processes that share memory exchange 8 bytes without the library, once
// through a cache line for each pair of them (pair lanes, as in the library) and once through one line for each writer,
// which all others read (a group lane). Without error handling, the difference is the cost of the lines themselves.
//
// Usage: group_lines [PROCESSES [ROUNDS]]; by default 8 and 11. Rounds of both ways alternate; prints medians.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

namespace {

constexpr int kMostProcesses = 64;
constexpr int kMostRounds = 1000;
constexpr std::uint64_t kSlots = 16;
constexpr int kOperations = 2000;  // of a round
constexpr unsigned kMostSeconds = 600;
constexpr int kSpins = 100;  // before the processor is left to another process

struct alignas(128) Line {
  std::atomic<std::uint64_t> sequence{0};
  std::uint64_t value = 0;
};
using Ring = std::array<Line, kSlots>;

// One writer for each ring and each count.
struct Shared {
  std::array<std::array<Ring, kMostProcesses>, kMostProcesses> pairs;  // by writer and reader
  std::array<Ring, kMostProcesses> groups;                             // by writer
  std::array<Line, kMostProcesses> read;                               // by reader: broadcasts that it has read
  std::array<Line, kMostProcesses> here;                               // by process: rounds that it has begun
  std::atomic<bool> wrong{false};
};

void await(const std::atomic<std::uint64_t>& sequence, std::uint64_t wanted) {
  for (int spins = 0; sequence.load(std::memory_order_acquire) < wanted;) {
    if (++spins > kSpins) ::sched_yield();
  }
}

void write(Ring& ring, std::uint64_t number, std::uint64_t value) {
  Line& line = ring[number % kSlots];
  line.value = value;
  line.sequence.store(number, std::memory_order_release);
}

std::uint64_t read(const Ring& ring, std::uint64_t number) {
  const Line& line = ring[number % kSlots];
  await(line.sequence, number);
  return line.value;
}

class Process {
 public:
  Process(Shared& shared, int rank, int n) : shared_(shared), rank_(rank), n_(n) {}

  // A line is written again 16 operations later, when all have read it: who writes has heard from all since.
  void all_reduce(bool by_group) {
    const std::uint64_t number = ++numbers_[by_group ? 0 : 1];
    if (by_group) write(shared_.groups[at(rank_)], number, value(rank_, number));
    std::uint64_t sum = value(rank_, number);
    for (int to = 0; to < n_ && !by_group; ++to) {
      if (to != rank_) write(shared_.pairs[at(rank_)][at(to)], number, value(rank_, number));
    }
    std::uint64_t expected = sum;
    for (int i = 1; i < n_; ++i) {
      const int from = (rank_ + i) % n_;
      sum += read(by_group ? shared_.groups[at(from)] : shared_.pairs[at(from)][at(rank_)], number);
      expected += value(from, number);
    }
    if (sum != expected) shared_.wrong = true;
  }

  // From rank 0, which looks now and then what the others have read, so that no line is written again before that.
  void broadcast(bool by_group) {
    const std::uint64_t number = ++numbers_[by_group ? 0 : 1];
    const std::uint64_t broadcasts = ++broadcasts_;
    if (rank_ != 0) {
      const std::uint64_t got = read(by_group ? shared_.groups[0] : shared_.pairs[0][at(rank_)], number);
      if (got != value(0, number)) shared_.wrong = true;
      shared_.read[at(rank_)].sequence.store(broadcasts, std::memory_order_release);
      return;
    }
    for (int from = 1; from < n_ && broadcasts % (kSlots / 2) == 0; ++from) {
      await(shared_.read[at(from)].sequence, broadcasts - kSlots / 2);
    }
    if (by_group) return write(shared_.groups[0], number, value(0, number));
    for (int to = 1; to < n_; ++to) write(shared_.pairs[0][at(to)], number, value(0, number));
  }

  void meet() {
    shared_.here[at(rank_)].sequence.store(++meetings_, std::memory_order_release);
    for (int other = 0; other < n_; ++other) await(shared_.here[at(other)].sequence, meetings_);
  }

  // Microseconds of one operation.
  double round(bool reduces, bool by_group) {
    meet();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kOperations; ++i) reduces ? all_reduce(by_group) : broadcast(by_group);
    meet();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    return took.count() / kOperations;
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  static std::uint64_t value(int rank, std::uint64_t number) {
    return number * 1000 + static_cast<std::uint64_t>(rank);
  }

  Shared& shared_;
  int rank_;
  int n_;
  std::array<std::uint64_t, 2> numbers_{};  // of operations by group lanes and by pair lanes
  std::uint64_t broadcasts_ = 0;
  std::uint64_t meetings_ = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(Process process, int rank, int rounds) {
  if (rank == 0) std::printf("%-10s  %10s  %10s  %s\n", "8 bytes", "pairs us", "group us", "pairs / group");
  for (const bool reduces : {true, false}) {
    std::array<std::vector<double>, 2> us;
    for (int i = 0; i < rounds; ++i) {
      for (const bool by_group : {false, true}) us[by_group ? 1 : 0].push_back(process.round(reduces, by_group));
    }
    if (rank != 0) continue;
    const double pairs = median(us[0]);
    const double group = median(us[1]);
    std::printf("%-10s  %10.2f  %10.2f  %.2f\n", reduces ? "all-reduce" : "broadcast", pairs, group, pairs / group);
  }
  if (rank == 0) std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 8;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 11;
  if (n < 2 || n > kMostProcesses || rounds < 1 || rounds > kMostRounds || argc > 3) {
    std::fprintf(stderr, "usage: group_lines [PROCESSES (2 to %d) [ROUNDS (1 to %d)]]\n", kMostProcesses, kMostRounds);
    return 2;
  }
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("group_lines: mmap");
    return 1;
  }
  auto& shared = *new (memory) Shared;
  // Limits the wait for a process that has died.
  ::alarm(kMostSeconds);
  std::vector<pid_t> children;
  for (int rank = 1; rank < n; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(kMostSeconds);
      run(Process(shared, rank, n), rank, rounds);
      ::_exit(0);
    }
    if (child < 0) {
      std::perror("group_lines: fork");
      for (const pid_t each : children) ::kill(each, SIGKILL);
      return 1;
    }
    children.push_back(child);
  }
  run(Process(shared, 0, n), 0, rounds);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  if (shared.wrong) std::fprintf(stderr, "group_lines: wrong bytes\n");
  return shared.wrong ? 1 : 0;
}
