#include "measure.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/bus_factor.h"
#include "os/clock.h"

namespace tutti::internal::perf {
namespace {

constexpr std::int64_t kMaxBatches = 100;
constexpr std::int64_t kMinIterations = 20;
constexpr std::int64_t kMaxIterations = 1'000'000;
constexpr double kTimePerMeasurementNs = 100e6;
constexpr double kMostTimeNs = 500e6;  // of repetitions, until the median is known well enough
constexpr double kLeastTimeNs = 50e6;  // less is not worth another repetition
constexpr double kSpread = 0.02;       // of the median
constexpr std::int64_t kProbeIterations = 4;
constexpr int kIterationsOfGraph = 20;  // nccl-tests'
constexpr double kShortProbeNs = 1e6;   // a shorter probe is repeated with more iterations
constexpr std::int64_t kProbeGrowth = 25;

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
  void add(const BatchTimes& times) {
    whole_ns.insert(whole_ns.end(), times.whole_ns.begin(), times.whole_ns.end());
    calling_ns.insert(calling_ns.end(), times.calling_ns.begin(), times.calling_ns.end());
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
  for (std::int64_t probed = kProbeIterations; iteration_ns.is_ok() &&
                                               *iteration_ns * static_cast<double>(probed) < kShortProbeNs &&
                                               probed < kMaxIterations;) {
    probed *= kProbeGrowth;
    iteration_ns = probe(options, operation, rank, probed);
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

Status combine(const Rank& rank, Average average, BatchTimes& times) {
  if (Status status = combine(rank, average, times.whole_ns); !status.is_ok()) return status;
  return combine(rank, average, times.calling_ns);
}

// `times`: combined, of one operation, which makes `in_turn` transfers one after the other.
Timing summarize(BatchTimes times, int in_turn, std::int64_t iterations) {
  for (std::vector<double>* values : {&times.whole_ns, &times.calling_ns}) {
    for (double& batch_ns : *values) batch_ns /= in_turn;
    std::sort(values->begin(), values->end());
  }
  const std::vector<double>& whole_ns = times.whole_ns;
  // Nearest rank: the smallest value that at least 99 % of the batches do not exceed.
  const auto p99 = static_cast<std::size_t>(std::ceil(0.99 * static_cast<double>(whole_ns.size())));
  return {whole_ns.front() / 1e3, median_of(whole_ns) / 1e3, whole_ns[p99 - 1] / 1e3, median_of(times.calling_ns) / 1e3,
          iterations};
}

// Batches of `iterations` in all, from when all ranks are ready.
Result<BatchTimes> time_batches(const Options& options, const Operation& operation, const Rank& rank,
                                std::int64_t iterations, std::int64_t batches) {
  BatchTimes times;
  if (Status status = meet(rank); !status.is_ok()) return status;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const std::int64_t length = iterations / batches + (batch < iterations % batches ? 1 : 0);
    const Result<OperationTime> time = time_batch(options, operation, rank, length);
    if (!time.is_ok()) return time.status();
    times.add(time.value());
  }
  if (Status status = combine(rank, options.average, times); !status.is_ok()) return status;
  return times;
}

struct Repetition {
  std::int64_t iterations = 0;  // 0: none
  std::int64_t keeps = 1;       // what there is so far; 0: it was so short that it only tells how long to go on
};

// Whether to go on, as rank 0 has it for all: until the median is known well enough, or enough time was spent.
// `iterations`: so far.
Result<Repetition> choose_more(const Options& options, const Rank& rank, const BatchTimes& times,
                               std::int64_t iterations) {
  Repetition more;
  if (options.iterations > 0) return more;
  double spent_ns = 0;
  for (const double ns : times.whole_ns) spent_ns += ns;
  const double iteration_ns = spent_ns / static_cast<double>(times.whole_ns.size()) * options.aggregate;
  spent_ns = iteration_ns * static_cast<double>(iterations);
  const double left_ns = kMostTimeNs - spent_ns;
  if (spent_ns < kTimePerMeasurementNs / 2 && iterations < kMaxIterations) {
    more = {std::clamp(static_cast<std::int64_t>(kTimePerMeasurementNs / std::max(iteration_ns, 1.0)), iterations,
                       kMaxIterations),
            0};
  } else if (spread_of(times.whole_ns) > kSpread && left_ns >= kLeastTimeNs) {
    // As many again, so that there are few repetitions.
    more.iterations = std::min(iterations, static_cast<std::int64_t>(left_ns / iteration_ns));
  }
  const tuttiResult_t result = tuttiBcast(&more, 2, tuttiInt64, 0, rank.own_comm, nullptr);
  if (Status status = to_status(result, "agreeing on repetitions", rank.own_comm); !status.is_ok()) return status;
  return more;
}

Result<Timing> time_operation(const Options& options, const Operation& operation, const Rank& rank) {
  if (Status status = operation.clear(); !status.is_ok()) return status;
  if (options.warmup_iterations > 0) {
    const Result<OperationTime> warm = time_batch(options, operation, rank, options.warmup_iterations);
    if (!warm.is_ok()) return warm.status();
  }
  const Result<std::int64_t> iterations = choose_iterations(options, operation, rank);
  if (!iterations.is_ok()) return iterations.status();
  BatchTimes times;
  std::int64_t total = 0;
  std::int64_t length = 0;  // of a batch, at most
  for (Repetition next{iterations.value(), 0}; next.iterations > 0;) {
    if (next.keeps == 0) {
      times = {};
      total = 0;
      length = (next.iterations + kMaxBatches - 1) / kMaxBatches;
    }
    const std::int64_t batches = (next.iterations + length - 1) / length;
    const Result<BatchTimes> some = time_batches(options, operation, rank, next.iterations, batches);
    if (!some.is_ok()) return some.status();
    times.add(some.value());
    total += next.iterations;
    const Result<Repetition> more = choose_more(options, rank, times, total);
    if (!more.is_ok()) return more.status();
    next = more.value();
  }
  return summarize(std::move(times), options.subject.in_turn(), total);
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
  if (Status status = combine(rank, options.average, times); !status.is_ok()) return status;
  return summarize(std::move(times), options.subject.in_turn(), std::int64_t{iterations} * options.graph_launches);
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

double spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const double low = std::max(0.0, (n - 1) / 2 - 0.98 * std::sqrt(n));
  const auto first = static_cast<std::size_t>(low);
  return (values[values.size() - 1 - first] - values[first]) / 2 / median_of(values);
}

double bus_factor(Subject subject, int ranks) {
  return subject.collective() == nullptr ? 1 : internal::bus_factor(*subject.collective(), ranks);
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
