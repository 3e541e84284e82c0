#include "summary.h"

#include <array>
#include <atomic>
#include <cctype>
#include <cstdio>

#include "config.h"
#include "interface.h"
#include "recovery.h"

namespace tutti::mpi {
namespace {

constexpr auto kFunctions = static_cast<std::size_t>(Function::kFunctions);
constexpr auto kReasons = static_cast<std::size_t>(Reason::kReasons);

// As the nonblocking ones have them, behind the I.
constexpr std::array<const char*, kFunctions> kFunctionNames = {"allreduce",
                                                                "reduce",
                                                                "bcast",
                                                                "allgather",
                                                                "allgatherv",
                                                                "gather",
                                                                "gatherv",
                                                                "scatter",
                                                                "scatterv",
                                                                "reduce_scatter",
                                                                "reduce_scatter_block",
                                                                "alltoall",
                                                                "alltoallv",
                                                                "alltoallw",
                                                                "barrier",
                                                                "scan",
                                                                "exscan"};
constexpr std::array<const char*, kReasons> kReasonNames = {
    "",
    "TUTTI_MPI=off",
    "outside MPI_Init and MPI_Finalize",
    "intercommunicator",
    "one rank",
    "processes of another MPI_COMM_WORLD",
    "no MPI_THREAD_SERIALIZED",
    "no tutti communicator could be made",
    "one of tutti's variables cannot be used",
    "limit of open files",
    "one of the first of its communicator",
    "nonblocking, and no blocking call has made a tutti communicator",
    "operator and datatype",
    "nonblocking, and a function computes it",
    "nonblocking, and short",
    "layout of the datatype",
    "argument that is an error"};

struct Count {
  std::atomic<long long> calls{0};
  std::atomic<long long> failed{0};
  std::atomic<long long> nanoseconds{0};
};
// Of blocking calls of each function, then of nonblocking ones, by reasons; the last is of making communicators.
constexpr std::size_t kMaking = kFunctions * 2 * kReasons;
constexpr std::size_t kCounts = kMaking + 1;
std::array<Count, kCounts> counts;

Count& count_of(Function function, bool nonblocking, Reason reason) {
  const std::size_t form = static_cast<std::size_t>(function) * 2 + (nonblocking ? 1 : 0);
  return counts[form * kReasons + static_cast<std::size_t>(reason)];
}

void add(Count& count, long long calls, const Timer& timer) {
  count.calls.fetch_add(calls, std::memory_order_relaxed);
  count.nanoseconds.fetch_add(timer.nanoseconds(), std::memory_order_relaxed);
}

using Numbers = std::array<long long, kCounts>;

// On rank 0 that of all ranks.
Numbers reduced(const Numbers& mine, MPI_Op op, MPI_Comm comm) {
  Numbers all{};
  PMPI_Reduce(mine.data(), all.data(), static_cast<int>(kCounts), MPI_LONG_LONG, op, 0, comm);
  return all;
}

struct Totals {
  Numbers calls;
  Numbers failed;
  Numbers nanoseconds;
  Numbers slowest;
};

struct Times {
  double mean;
  double slowest;
};

Times times_of(const Totals& totals, std::size_t at, int ranks) {
  return {static_cast<double>(totals.nanoseconds[at]) * 1e-9 / ranks, static_cast<double>(totals.slowest[at]) * 1e-9};
}

void print_calls(const Totals& totals, std::size_t at, int ranks) {
  const Form form = at / kReasons % 2 != 0 ? Form::kNonblocking : Form::kBlocking;
  const std::size_t reason = at % kReasons;
  const Times times = times_of(totals, at, ranks);
  std::fprintf(stderr, "tutti:   %s: %lld call%s, %.6f s, at most %.6f s, %s%s",
               name_of(static_cast<Function>(at / kReasons / 2), form).data(), totals.calls[at],
               totals.calls[at] == 1 ? "" : "s", times.mean, times.slowest,
               reason == 0 ? "taken" : "passed on: ", kReasonNames[reason]);
  if (totals.failed[at] > 0) std::fprintf(stderr, ", %lld failed", totals.failed[at]);
  std::fputc('\n', stderr);
}

}  // namespace

Name name_of(Function function, Form form) {
  const char* const name = kFunctionNames[static_cast<std::size_t>(function)];
  const bool nonblocking = form == Form::kNonblocking;
  Name text{};
  std::snprintf(text.data(), text.size(), "MPI_%c%s%s", nonblocking ? 'I' : std::toupper(*name),
                nonblocking ? name : name + 1, form == Form::kPersistent ? "_init" : "");
  return text;
}

void Timer::restart() {
  if (config().summary) start_ = std::chrono::steady_clock::now();
}

long long Timer::nanoseconds() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start_).count();
}

void count_call(Function function, bool nonblocking, Reason reason, const Timer& timer) {
  if (config().summary) add(count_of(function, nonblocking, reason), 1, timer);
}

void count_failed(Function function, bool nonblocking) {
  count_of(function, nonblocking, Reason::kNone).failed.fetch_add(1, std::memory_order_relaxed);
}

void count_making(bool made, const Timer& timer) {
  if (config().summary) add(counts[kMaking], made ? 1 : 0, timer);
}

void print_summary() {
  int rank = 0;
  int ranks = 0;
  const MPI_Comm living = living_world();
  if (living == MPI_COMM_NULL) return;
  PMPI_Comm_rank(living, &rank);
  PMPI_Comm_size(living, &ranks);
  Numbers calls{};
  Numbers failed{};
  Numbers mine{};
  for (std::size_t at = 0; at < kCounts; ++at) {
    calls[at] = counts[at].calls.load(std::memory_order_relaxed);
    failed[at] = counts[at].failed.load(std::memory_order_relaxed);
    mine[at] = counts[at].nanoseconds.load(std::memory_order_relaxed);
  }
  const Totals totals{reduced(calls, MPI_SUM, living), reduced(failed, MPI_SUM, living), reduced(mine, MPI_SUM, living),
                      reduced(mine, MPI_MAX, living)};
  free_living_world(living);
  if (rank != 0) return;
  std::fprintf(stderr, "tutti: collectives of %d rank%s: calls of all, mean time of a rank and that of the slowest\n",
               ranks, ranks == 1 ? "" : "s");
  const long long made = totals.calls[kMaking];
  const Times making = times_of(totals, kMaking, ranks);
  if (made > 0 || making.slowest > 0) {
    std::fprintf(stderr, "tutti:   communicators made: %lld, %.6f s, at most %.6f s\n", made, making.mean,
                 making.slowest);
  }
  for (std::size_t at = 0; at < kMaking; ++at) {
    if (totals.calls[at] > 0) print_calls(totals, at, ranks);
  }
}

}  // namespace tutti::mpi
