#include "measure.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/clock.h"

namespace tutti::internal::perf {
namespace {

constexpr std::int64_t kMaxBatches = 100;
constexpr std::int64_t kMinIterations = 20;
constexpr std::int64_t kMaxIterations = 20'000;
constexpr double kTimePerMeasurementNs = 100e6;
constexpr std::int64_t kProbeIterations = 4;
constexpr int kIterationsOfGraph = 20;  // nccl-tests'
constexpr double kShortProbeNs = 1e6;   // a shorter probe is repeated with more iterations

// values[i] = the largest over the ranks.
Status max_over_ranks(const Rank& rank, std::vector<double>& values) {
  return to_status(
      tuttiAllReduce(values.data(), values.data(), values.size(), tuttiFloat64, tuttiMax, rank.own_comm, nullptr),
      "gathering times", rank.own_comm);
}

// Nanoseconds of one of `iterations` calls on this rank.
Result<double> time_batch(const Operation& operation, const Rank& rank, std::int64_t iterations) {
  const std::int64_t begin_ns = now_ns();
  for (std::int64_t i = 0; i < iterations; ++i) {
    const tuttiResult_t result = operation.call();
    if (result != tuttiSuccess) return to_status(result, "the operation", rank.comm);
  }
  if (Status status = synchronize(rank); !status.is_ok()) return status;
  return static_cast<double>(now_ns() - begin_ns) / static_cast<double>(iterations);
}

// The slowest rank's time of one of `iterations` calls; the same on all ranks.
Result<double> probe(const Operation& operation, const Rank& rank, std::int64_t iterations) {
  Result<double> own_ns = time_batch(operation, rank, iterations);
  if (!own_ns.is_ok()) return own_ns;
  std::vector<double> slowest{*own_ns};
  if (Status status = max_over_ranks(rank, slowest); !status.is_ok()) return status;
  return slowest.front();
}

Result<std::int64_t> choose_iterations(const Options& options, const Operation& operation, const Rank& rank) {
  if (options.iterations > 0) return std::int64_t{options.iterations};
  Result<double> call_ns = probe(operation, rank, kProbeIterations);
  if (call_ns.is_ok() && *call_ns * kProbeIterations < kShortProbeNs) {
    call_ns = probe(operation, rank, kProbeIterations * 25);
  }
  if (!call_ns.is_ok()) return call_ns.status();
  const double wanted = kTimePerMeasurementNs / std::max(*call_ns, 1.0);
  return static_cast<std::int64_t>(std::clamp<double>(wanted, kMinIterations, kMaxIterations));
}

// `batches_ns`: of one call, which makes `in_turn` transfers one after the other.
Timing summarize(std::vector<double> batches_ns, int in_turn, std::int64_t iterations) {
  for (double& batch_ns : batches_ns) batch_ns /= in_turn;
  std::sort(batches_ns.begin(), batches_ns.end());
  const std::size_t n = batches_ns.size();
  const double median_ns = (batches_ns[(n - 1) / 2] + batches_ns[n / 2]) / 2;
  // Nearest rank: the smallest value that at least 99 % of the batches do not exceed.
  const auto p99 = static_cast<std::size_t>(std::ceil(0.99 * static_cast<double>(n)));
  return {batches_ns.front() / 1e3, median_ns / 1e3, batches_ns[p99 - 1] / 1e3, iterations};
}

Result<Timing> time_operation(const Options& options, const Operation& operation, const Rank& rank) {
  if (Status status = operation.clear(); !status.is_ok()) return status;
  if (options.warmup_iterations > 0) {
    const Result<double> warm = time_batch(operation, rank, options.warmup_iterations);
    if (!warm.is_ok()) return warm.status();
  }
  const Result<std::int64_t> iterations = choose_iterations(options, operation, rank);
  if (!iterations.is_ok()) return iterations.status();
  const std::int64_t total = iterations.value();
  const std::int64_t batches = std::min(total, kMaxBatches);
  std::vector<double> batches_ns;
  if (Status status = meet(rank); !status.is_ok()) return status;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const std::int64_t length = total / batches + (batch < total % batches ? 1 : 0);
    const Result<double> call_ns = time_batch(operation, rank, length);
    if (!call_ns.is_ok()) return call_ns.status();
    batches_ns.push_back(call_ns.value());
  }
  if (Status status = max_over_ranks(rank, batches_ns); !status.is_ok()) return status;
  return summarize(std::move(batches_ns), options.subject.in_turn(), total);
}

// Each launch of a graph is a batch.
Result<Timing> time_graph(const Options& options, const Operation& operation, const Rank& rank) {
  if (Status status = operation.clear(); !status.is_ok()) return status;
  const int iterations = options.iterations > 0 ? options.iterations : kIterationsOfGraph;
  auto graph = Graph::capture(*rank.device, [&] {
    tuttiResult_t result = tuttiSuccess;
    for (int i = 0; i < iterations && result == tuttiSuccess; ++i) result = operation.call();
    return to_status(result, "the operation", rank.comm);
  });
  if (!graph.is_ok()) return graph.status();
  if (Status status = meet(rank); !status.is_ok()) return status;
  std::vector<double> batches_ns;
  // The first one warms up.
  for (int launch = 0; launch <= options.graph_launches; ++launch) {
    const std::int64_t begin_ns = now_ns();
    if (Status status = (*graph)->launch(); !status.is_ok()) return status;
    if (Status status = synchronize(rank); !status.is_ok()) return status;
    if (launch > 0) batches_ns.push_back(static_cast<double>(now_ns() - begin_ns) / iterations);
  }
  if (Status status = max_over_ranks(rank, batches_ns); !status.is_ok()) return status;
  return summarize(std::move(batches_ns), options.subject.in_turn(), std::int64_t{iterations} * options.graph_launches);
}

Result<std::int64_t> verify_all(const Options& options, Problem& problem, const Operation& operation, const Rank& rank,
                                std::int64_t* own_errors) {
  if (options.checks == 0) return std::int64_t{-1};
  std::int64_t errors = 0;
  for (int check = 0; check < options.checks; ++check) {
    ++problem.seed;
    const Result<std::int64_t> found = !problem.subject.has_data() ? verify_barrier(rank) : operation.verify();
    if (!found.is_ok()) return found.status();
    if (found.value() < 0) return std::int64_t{-1};
    errors += found.value();
  }
  *own_errors += errors;
  const tuttiResult_t result = tuttiAllReduce(&errors, &errors, 1, tuttiInt64, tuttiSum, rank.own_comm, nullptr);
  if (Status status = to_status(result, "gathering errors", rank.own_comm); !status.is_ok()) return status;
  return errors;
}

}  // namespace

double bus_factor(Subject subject, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (subject.has_blocks()) return others;
  return subject.reduces() && subject.alike_everywhere() ? 2 * others : 1;
}

double bus_factor(const Problem& problem) {
  const double elements = static_cast<double>(problem.vector_elements());
  if (!problem.subject.varies() || elements == 0) return bus_factor(problem.subject, problem.ranks);
  // Its own block a rank has already; it sends or receives all others, of a rooted collective only the root.
  std::size_t least = problem.vector_elements();
  for (int rank = 0; rank < problem.ranks; ++rank) {
    if (problem.subject.has_root() && rank != problem.root) continue;
    least = std::min(least, problem.blocks(rank)[static_cast<std::size_t>(rank)]);
  }
  return (elements - static_cast<double>(least)) / elements;
}

Result<Measurement> measure(const Options& options, const Problem& problem, const Rank& rank, const Buffers& buffers,
                            bool in_place, std::int64_t* own_errors) {
  Problem seeded = problem;
  const Operation operation(seeded, rank, buffers, in_place);
  const Result<std::int64_t> errors = verify_all(options, seeded, operation, rank, own_errors);
  if (!errors.is_ok()) return errors.status();
  const Result<Timing> timing =
      rank.in_graphs ? time_graph(options, operation, rank) : time_operation(options, operation, rank);
  if (!timing.is_ok()) return timing.status();
  return Measurement{timing.value(), errors.value()};
}

}  // namespace tutti::internal::perf
