// tutti explain: which algorithm serves a collective, why, and how the others compare.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/standard_output.h"
#include "candidates.h"
#include "cluster_options.h"
#include "command.h"
#include "names.h"
#include "perf/harness/options.h"
#include "perf/harness/ranks.h"
#include "perf/harness/size_value.h"
#include "selection/prediction.h"
#include "selection/select.h"
#include "tools/drawing/picture.h"
#include "tools/trace/delays.h"
#include "tools/trace/members.h"
#include "topology/detect.h"

namespace tutti::internal::tools {
namespace {

struct Options {
  ClusterOptions cluster;
  std::optional<int> ranks;
  std::string collective = "all_reduce";
  std::uint64_t bytes = 1 << 20;
  int root = 0;
  bool measure = false;
  std::vector<std::string> traces;  // folders of TUTTI_TRACE
  std::optional<std::uint32_t> operation;
  double seconds = 10;
};

struct Context {
  Collective collective = Collective::kAllReduce;
  Machines machines;
  selection::Explanation explanation;
  std::string why;
};

// As a communicator of these ranks would choose, in this environment.
Result<Context> explain(Options& options) {
  Context context;
  const Result<Collective> collective = parse_collective(options.collective);
  if (!collective.is_ok()) return collective.status();
  context.collective = collective.value();
  if (Status s = fit_size(context.collective, &options.bytes); !s.is_ok()) return s;
  auto machines = make_machines(options.cluster);
  if (!machines.is_ok()) return machines.status();
  context.machines = std::move(*machines);
  const algorithms::World world = world_of(context.machines);
  if (world.ranks == 0) return Status::invalid_argument("there are no hosts, so no ranks");
  if (options.root >= world.ranks) return Status::invalid_argument(fmt::format("--root must be below {}", world.ranks));
  const Result<Settings> settings = settings_from_environment();
  if (!settings.is_ok()) return settings.status();
  const auto tuning = apply_tuning(settings.value().tuning, context.machines);
  if (!tuning.is_ok()) return tuning.status();
  const selection::TunedJob* const tuned = tuning.value()->tuned;
  const auto model = model_of(context.machines, tuning.value()->fitted);
  auto explained = selection::explain(context.collective, *model, options.bytes, settings.value().algorithm,
                                      schedule::Order::kAny, tuned);
  if (!explained.is_ok()) return explained.status();
  context.explanation = std::move(*explained);
  context.why = text_of(context.explanation.because);
  if (!settings.value().tuning.empty() && (context.explanation.because == selection::Because::kPredicted ||
                                           context.explanation.because == selection::Because::kNearly)) {
    context.why += tuned == nullptr ? "; the file of TUTTI_TUNING has no such job"
                                    : "; the file of TUTTI_TUNING has no such collective";
  }
  if (!tuning.value()->about.empty()) context.why += "\n" + tuning.value()->about;
  for (const std::string& idle : selection::idle_names(model->world(), settings.value().algorithm)) {
    context.why += fmt::format("\nTUTTI_ALGORITHM: {}", idle);
  }
  return context;
}

// By name; what cannot be simulated is missing.
std::map<std::string, double> simulated(const Context& context, const Options& options) {
  std::map<std::string, double> times;
  for (const selection::Candidate& one : context.explanation.candidates) {
    selection::Question question;
    question.entry = one.entry;
    question.root = options.root;
    question.bytes = options.bytes;
    question.sharing = context.machines.sharing;
    question.slowed = context.machines.slowed;
    question.most_memory_bytes = std::size_t{2} << 30;
    const auto prediction = selection::predict(context.machines.graph, context.machines.costs, question);
    if (prediction.is_ok()) times[one.entry->name] = prediction.value().timing.total_us;
  }
  return times;
}

void print(const Context& context, const Options& options, const std::map<std::string, double>& measured) {
  const algorithms::World world = world_of(context.machines);
  const std::map<std::string, double> simulation = simulated(context, options);
  std::printf("%s of %s over %d rank%s on %zu host%s: %s\n%s\n\n", name_of(context.collective),
              text_of_bytes(static_cast<double>(options.bytes)).c_str(), world.ranks, world.ranks == 1 ? "" : "s",
              std::max<std::size_t>(1, world.hosts.size()), world.hosts.size() > 1 ? "s" : "",
              context.explanation.chosen->name, context.why.c_str());
  std::printf("  %-28s %14s %14s%s\n  %-28s %14s %14s%s\n", "algorithm", "predicted", "one call",
              measured.empty() ? "" : "       measured", "", "(us)", "(us)", measured.empty() ? "" : "           (us)");
  const auto text = [](const std::map<std::string, double>& times, const std::string& name) {
    const auto known = times.find(name);
    return known == times.end() ? std::string("-") : fmt::format("{:.2f}", known->second);
  };
  for (const selection::Candidate& one : context.explanation.candidates) {
    std::printf("%s %-28s %14.2f %14s", one.entry == context.explanation.chosen ? ">" : " ", one.entry->name,
                one.predicted_us, text(simulation, one.entry->name).c_str());
    if (!measured.empty()) std::printf(" %14s", text(measured, one.entry->name).c_str());
    std::printf("\n");
  }
  std::fflush(stdout);
}

// The candidates on real ranks of this machine, and then all of it.
int run_measured(const Options& options, const Context& context) {
  if (info_of(context.collective).varies) {
    std::fprintf(stderr, "tutti explain: --measure: blocks of different counts are not measured\n");
    return kExitUsage;
  }
  perf::Options started;
  started.processes = world_of(context.machines).ranks;
  return perf::run_ranks(started, [&](tuttiComm_t comm) {
    MeasureOptions what;
    what.collectives = {context.collective};
    what.sizes = {options.bytes};
    what.seconds = options.seconds;
    const auto found = measure_candidates(comm, what);
    int rank = 0;
    (void)tuttiCommUserRank(comm, &rank);
    if (!found.is_ok()) {
      std::fprintf(stderr, "tutti explain: %s\n", found.status().message().c_str());
      return kExitFailure;
    }
    std::map<std::string, double> times;
    for (const MeasuredTime& one : found.value().times) times[one.entry->name] = one.us;
    if (rank == 0) print(context, options, times);
    return kExitOk;
  });
}

// Of a job that has run with TUTTI_TRACE.
int run_traced(const Options& options) {
  auto traced = read_all_traces(options.traces);
  if (!traced.is_ok()) {
    std::fprintf(stderr, "tutti explain: %s\n", traced.status().message().c_str());
    return kExitUsage;
  }
  for (const std::string& why : traced->others) std::fprintf(stderr, "tutti explain: %s\n", why.c_str());
  bool any = false;
  for (const Delays& delays : find_delays(traced->processes, options.operation)) {
    if (delays.collectives == 0 && (options.operation || delays.uncompared.empty())) continue;
    std::printf("%s", text_of(delays).c_str());
    any = true;
  }
  if (!any && options.operation) {
    std::fprintf(stderr, "tutti explain: no trace has all ranks of a collective with the number %u\n",
                 static_cast<unsigned>(*options.operation));
    return kExitUsage;
  }
  return flush_standard_output().is_ok() ? kExitOk : kExitFailure;
}

int run_explain(Options options) {
  if (!options.traces.empty()) return run_traced(options);
  // Nothing describes other machines: it is this one, whose processors its ranks share.
  ClusterOptions& cluster = options.cluster;
  const bool here = cluster.topology.empty() && !cluster.per_host && cluster.hosts.value_or(1) == 1;
  if (here || options.ranks) cluster.per_host = options.ranks.value_or(2);
  if (here && !cluster.cores) cluster.cores = static_cast<int>(topology::allowed_processors().count());
  const Result<Context> context = explain(options);
  if (!context.is_ok()) {
    std::fprintf(stderr, "tutti explain: %s\n", context.status().message().c_str());
    return kExitUsage;
  }
  if (!options.measure) {
    print(context.value(), options, {});
    return kExitOk;
  }
  if (here && *cluster.per_host > 1) return run_measured(options, context.value());
  std::fprintf(stderr, "tutti explain: --measure needs two or more ranks of this machine: -n, and no other machines\n");
  return kExitUsage;
}

}  // namespace

Run add_explain(CLI::App& app, CLI::App** chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("explain", "Print the algorithm that serves a collective, and the reason");
  command->add_option("collective", options->collective, "One of " + all_collectives())
      ->type_name("COLLECTIVE")
      ->capture_default_str();
  command->add_option("--collective", options->collective)->group("");  // as tutti simulate has it
  command->add_option("-s,--size", options->bytes, "Bytes of the whole vector, all blocks together: 8, 64K, 1M (1M)")
      ->transform(perf::SizeValue());
  command->add_option("--root", options->root, "Root, for collectives with a root")
      ->check(CLI::Range(0, topology::kMostRanks));
  add_cluster_options(*command, options->cluster);
  command
      ->add_option("-n,--ranks", options->ranks, "Ranks of this machine (2), or of each host if machines are described")
      ->check(CLI::Range(1, topology::kMostRanks))
      ->excludes("--per-host");
  command->add_flag("--measure", options->measure, "Also run the candidates, on processes of this machine");
  command->add_option("--seconds", options->seconds, "Time budget of --measure, in seconds")
      ->check(CLI::Range(0.1, 3600.0));
  command
      ->add_option(
          "--trace", options->traces,
          "Instead: of a job that ran with TUTTI_TRACE=DIR, the ranks and links that were slower than predicted")
      ->type_name("FILE");
  command->add_option("--operation", options->operation, "With --trace, only the collective with this number")
      ->needs("--trace");
  command->footer(
      "TUTTI_ALGORITHM and TUTTI_TUNING apply, as on rank 0 of a job; with --trace, those of the job do.\n"
      "Exit status: 0 success, 1 a measurement failed, 2 invalid arguments or settings, or no trace.");
  *chosen = command;
  return [options] { return run_explain(*options); };
}

}  // namespace tutti::internal::tools
