#include "summary.h"

#include <array>
#include <atomic>
#include <cctype>
#include <cstdio>

#include "config.h"
#include "interface.h"

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
    "layout of the datatype",
    "argument that is an error"};

struct Count {
  std::atomic<long long> calls{0};
  std::atomic<long long> nanoseconds{0};
};
std::array<std::array<std::array<Count, kReasons>, 2>, kFunctions> counts;

constexpr std::size_t kCounts = kFunctions * 2 * kReasons;
using Numbers = std::array<long long, kCounts>;

// On rank 0 that of all ranks.
Numbers reduced(const Numbers& mine, MPI_Op op) {
  Numbers all{};
  PMPI_Reduce(mine.data(), all.data(), static_cast<int>(kCounts), MPI_LONG_LONG, op, 0, MPI_COMM_WORLD);
  return all;
}

}  // namespace

Timer::Timer() {
  if (config().summary) start_ = std::chrono::steady_clock::now();
}

long long Timer::nanoseconds() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start_).count();
}

void count_call(Function function, bool nonblocking, Reason reason, const Timer& timer) {
  if (!config().summary) return;
  Count& count = counts[static_cast<std::size_t>(function)][nonblocking ? 1 : 0][static_cast<std::size_t>(reason)];
  count.calls.fetch_add(1, std::memory_order_relaxed);
  count.nanoseconds.fetch_add(timer.nanoseconds(), std::memory_order_relaxed);
}

void print_summary() {
  int rank = 0;
  int ranks = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
  Numbers calls{};
  Numbers mine{};
  for (std::size_t at = 0; at < kCounts; ++at) {
    const Count& count = counts[at / kReasons / 2][at / kReasons % 2][at % kReasons];
    calls[at] = count.calls.load(std::memory_order_relaxed);
    mine[at] = count.nanoseconds.load(std::memory_order_relaxed);
  }
  const Numbers all_calls = reduced(calls, MPI_SUM);
  const Numbers sums = reduced(mine, MPI_SUM);
  const Numbers most = reduced(mine, MPI_MAX);
  if (rank != 0) return;
  std::fprintf(stderr, "tutti: collectives of %d ranks: calls of all, mean time of a rank and that of the slowest\n",
               ranks);
  for (std::size_t at = 0; at < kCounts; ++at) {
    if (all_calls[at] == 0) continue;
    const char* name = kFunctionNames[at / kReasons / 2];
    const bool nonblocking = at / kReasons % 2 != 0;
    const char first = nonblocking ? 'I' : static_cast<char>(std::toupper(*name));
    const std::size_t reason = at % kReasons;
    std::fprintf(stderr, "tutti:   MPI_%c%s: %lld calls, %.6f s, at most %.6f s, %s%s\n", first,
                 nonblocking ? name : name + 1, all_calls[at], static_cast<double>(sums[at]) * 1e-9 / ranks,
                 static_cast<double>(most[at]) * 1e-9, reason == 0 ? "taken" : "passed on: ", kReasonNames[reason]);
  }
}

}  // namespace tutti::mpi
