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

// Nanoseconds of one operation, of which an iteration may have several.
struct OperationTime {
  double whole_ns = 0;
  double calling_ns = 0;  // until the call has returned
};

// The same of each batch.
struct BatchTimes {
  std::vector<double> whole_ns;
  std::vector<double> calling_ns;

  void add(const OperationTime& time) {
    whole_ns.push_back(time.whole_ns);
    calling_ns.push_back(time.calling_ns);
  }
};

// values[i] = what the ranks' values are taken for.
Status combine(const Rank& rank, Average average, std::vector<double>& values) {
  double* const data = values.data();
  const auto reduce = [&](tuttiRedOp_t op) {
    return tuttiAllReduce(data, data, values.size(), tuttiFloat64, op, rank.own_comm, nullptr);
  };
  tuttiResult_t result = tuttiSuccess;
  switch (average) {
    case Average::kRank0: result = tuttiBcast(data, values.size(), tuttiFloat64, 0, rank.own_comm, nullptr); break;
    case Average::kMean: result = reduce(tuttiAvg); break;
    case Average::kFastest: result = reduce(tuttiMin); break;
    case Average::kSlowest: result = reduce(tuttiMax); break;
  }
  return to_status(result, "gathering times", rank.own_comm);
}

// Of one of the operations in `iterations` iterations, on this rank.
Result<OperationTime> time_batch(const Options& options, const Operation& operation, const Rank& rank,
                                 std::int64_t iterations) {
  const std::int64_t begin_ns = now_ns();
  for (std::int64_t i = 0; i < iterations; ++i) {
    const tuttiResult_t result = operation.iterate();
    if (result != tuttiSuccess) return to_status(result, "the operation", rank.comm);
    if (!options.wait_each) continue;
    if (Status status = synchronize(rank); !status.is_ok()) return status;
  }
  const std::int64_t returned_ns = now_ns();
  if (Status status = synchronize(rank); !status.is_ok()) return status;
  const double operations = static_cast<double>(iterations) * options.aggregate;
  return OperationTime{static_cast<double>(now_ns() - begin_ns) / operations,
                       static_cast<double>(returned_ns - begin_ns) / operations};
}

// The slowest rank's time of one of `iterations` iterations; the same on all ranks.
Result<double> probe(const Options& options, const Operation& operation, const Rank& rank, std::int64_t iterations) {
  const Result<OperationTime> own = time_batch(options, operation, rank, iterations);
  if (!own.is_ok()) return own.status();
  std::vector<double> slowest{own.value().whole_ns * options.aggregate};
  if (Status status = combine(rank, Average::kSlowest, slowest); !status.is_ok()) return status;
  return slowest.front();
}

Result<std::int64_t> choose_iterations(const Options& options, const Operation& operation, const Rank& rank) {
  if (options.iterations > 0) return std::int64_t{options.iterations};
  Result<double> iteration_ns = probe(options, operation, rank, kProbeIterations);
  if (iteration_ns.is_ok() && *iteration_ns * kProbeIterations < kShortProbeNs) {
    iteration_ns = probe(options, operation, rank, kProbeIterations * 25);
  }
  if (!iteration_ns.is_ok()) return iteration_ns.status();
  const double wanted = kTimePerMeasurementNs / std::max(*iteration_ns, 1.0);
  return static_cast<std::int64_t>(std::clamp<double>(wanted, kMinIterations, kMaxIterations));
}

// REQUIRES: sorted.
double median_of(const std::vector<double>& values) {
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

// `times`: of one operation, which makes `in_turn` transfers one after the other.
Result<Timing> summarize(const Options& options, const Rank& rank, BatchTimes times, std::int64_t iterations) {
  for (std::vector<double>* values : {&times.whole_ns, &times.calling_ns}) {
    if (Status status = combine(rank, options.average, *values); !status.is_ok()) return status;
    for (double& batch_ns : *values) batch_ns /= options.subject.in_turn();
    std::sort(values->begin(), values->end());
  }
  const std::vector<double>& whole_ns = times.whole_ns;
  // Nearest rank: the smallest value that at least 99 % of the batches do not exceed.
  const auto p99 = static_cast<std::size_t>(std::ceil(0.99 * static_cast<double>(whole_ns.size())));
  return Timing{whole_ns.front() / 1e3, median_of(whole_ns) / 1e3, whole_ns[p99 - 1] / 1e3,
                median_of(times.calling_ns) / 1e3, iterations};
}

Result<Timing> time_operation(const Options& options, const Operation& operation, const Rank& rank) {
  if (Status status = operation.clear(); !status.is_ok()) return status;
  if (options.warmup_iterations > 0) {
    const Result<OperationTime> warm = time_batch(options, operation, rank, options.warmup_iterations);
    if (!warm.is_ok()) return warm.status();
  }
  const Result<std::int64_t> iterations = choose_iterations(options, operation, rank);
  if (!iterations.is_ok()) return iterations.status();
  const std::int64_t total = iterations.value();
  const std::int64_t batches = std::min(total, kMaxBatches);
  BatchTimes times;
  if (Status status = meet(rank); !status.is_ok()) return status;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const std::int64_t length = total / batches + (batch < total % batches ? 1 : 0);
    const Result<OperationTime> time = time_batch(options, operation, rank, length);
    if (!time.is_ok()) return time.status();
    times.add(time.value());
  }
  return summarize(options, rank, std::move(times), total);
}

// Each launch of a graph is a batch.
Result<Timing> time_graph(const Options& options, const Operation& operation, const Rank& rank) {
  if (Status status = operation.clear(); !status.is_ok()) return status;
  const int iterations = options.iterations > 0 ? options.iterations : kIterationsOfGraph;
  auto graph = Graph::capture(*rank.device, [&] {
    tuttiResult_t result = tuttiSuccess;
    for (int i = 0; i < iterations && result == tuttiSuccess; ++i) result = operation.iterate();
    return to_status(result, "the operation", rank.comm);
  });
  if (!graph.is_ok()) return graph.status();
  if (Status status = meet(rank); !status.is_ok()) return status;
  const double operations = static_cast<double>(iterations) * options.aggregate;
  BatchTimes times;
  // The first one warms up.
  for (int launch = 0; launch <= options.graph_launches; ++launch) {
    const std::int64_t begin_ns = now_ns();
    if (Status status = (*graph)->launch(); !status.is_ok()) return status;
    const double returned_ns = static_cast<double>(now_ns() - begin_ns);
    if (Status status = synchronize(rank); !status.is_ok()) return status;
    if (launch > 0) times.add({static_cast<double>(now_ns() - begin_ns) / operations, returned_ns / operations});
  }
  return summarize(options, rank, std::move(times), std::int64_t{iterations} * options.graph_launches);
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
  const Operation operation(seeded, rank, buffers, in_place, options.aggregate);
  const Result<std::int64_t> errors = verify_all(options, seeded, operation, rank, own_errors);
  if (!errors.is_ok()) return errors.status();
  const Result<Timing> timing =
      rank.in_graphs ? time_graph(options, operation, rank) : time_operation(options, operation, rank);
  if (!timing.is_ok()) return timing.status();
  return Measurement{timing.value(), errors.value()};
}

}  // namespace tutti::internal::perf
