#include "summary.h"

#include <array>
#include <atomic>
#include <cctype>
#include <cstdio>

#include "config.h"

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
    "no MPI_THREAD_SERIALIZED",
    "no tutti communicator could be made",
    "limit of open files",
    "nonblocking before any blocking collective of the communicator",
    "operator and datatype",
    "layout of the datatype",
    "argument that is an error"};

struct Count {
  std::atomic<long long> calls{0};
  std::atomic<long long> nanoseconds{0};
};
std::array<std::array<std::array<Count, kReasons>, 2>, kFunctions> counts;

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

void print_summary(int ranks) {
  std::fprintf(stderr, "tutti: collectives of rank 0 of %d\n", ranks);
  for (std::size_t function = 0; function < kFunctions; ++function) {
    for (std::size_t nonblocking = 0; nonblocking < 2; ++nonblocking) {
      for (std::size_t reason = 0; reason < kReasons; ++reason) {
        const Count& count = counts[function][nonblocking][reason];
        const long long calls = count.calls.load(std::memory_order_relaxed);
        if (calls == 0) continue;
        const char* name = kFunctionNames[function];
        const char first = nonblocking != 0 ? 'I' : static_cast<char>(std::toupper(*name));
        std::fprintf(stderr, "tutti:   MPI_%c%s: %lld calls, %.6f s, %s%s\n", first, nonblocking != 0 ? name : name + 1,
                     calls, static_cast<double>(count.nanoseconds.load(std::memory_order_relaxed)) * 1e-9,
                     reason == 0 ? "taken" : "passed on: ", kReasonNames[reason]);
      }
    }
  }
}

}  // namespace tutti::mpi
