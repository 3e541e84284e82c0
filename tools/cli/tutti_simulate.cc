// tutti simulate: how long a collective would take on machines that need not exist.
#include <fmt/core.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/config.h"
#include "cluster_options.h"
#include "command.h"
#include "names.h"
#include "os/clock.h"
#include "perf/harness/measure.h"
#include "perf/harness/output_file.h"
#include "perf/harness/progress_line.h"
#include "perf/harness/refusal.h"
#include "perf/harness/size_value.h"
#include "perf/plot/plot.h"
#include "selection/prediction.h"
#include "size_table.h"
#include "trace.h"

namespace tutti::internal::tools {
namespace {

using algorithms::AlgorithmEntry;
using nlohmann::json;
using selection::Prediction;

struct Options {
  ClusterOptions cluster;
  std::string collective = "all_reduce";
  std::string algorithm = "all";
  std::uint64_t bytes = 1 << 20;
  // Of several sizes; 0: not given.
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t factor = 0;
  std::string svg;
  std::size_t links = 10;
  int root = 0;
  double memory_gib = 0;
  std::string trace;
  bool as_json = false;
};

struct Outcome {
  const AlgorithmEntry* entry = nullptr;
  Status status;
  Prediction prediction;
  double seconds = 0;  // that the simulation took
};

double gbytes_per_second(double bytes, double us) {
  return us > 0 ? bytes / us / 1e3 : 0;
}

// Half of what the machine has free: the rest is for others.
std::size_t memory_limit(const Options& options) {
  if (options.memory_gib > 0) return static_cast<std::size_t>(options.memory_gib * (1 << 30));
  struct sysinfo info = {};
  if (::sysinfo(&info) != 0) return std::size_t{4} << 30;
  return (info.freeram + info.bufferram) * info.mem_unit / 2;
}

// `ports`: of each host.
Result<std::vector<const AlgorithmEntry*>> entries_of(const Options& options, Collective collective, int ports,
                                                      const algorithms::World& world) {
  std::vector<const AlgorithmEntry*> entries;
  if (options.algorithm != "all") {
    auto entry = entry_of(options.algorithm, options.collective);
    if (!entry.is_ok()) return entry.status();
    if ((*entry)->collective != collective) {
      return Status::invalid_argument(
          fmt::format("{} is an algorithm for {}: --collective", options.algorithm, name_of((*entry)->collective)));
    }
    entries.push_back(*entry);
    return entries;
  }
  return algorithms::candidates(collective, world, ports);
}

bool has_sizes(const Options& options) {
  return options.begin > 0 || options.end > 0;
}

// Ascending, as nccl-tests have them; without a range of them the one size.
Result<std::vector<std::uint64_t>> sizes_of(const Options& options, Collective collective) {
  if (!has_sizes(options)) {
    if (options.factor > 0) return Status::invalid_argument("--factor: needs --begin or --end");
    if (!options.svg.empty()) return Status::invalid_argument("--svg draws over sizes: --begin and --end");
    std::uint64_t bytes = options.bytes;
    if (Status s = fit_size(collective, &bytes); !s.is_ok()) return s;
    return std::vector<std::uint64_t>{bytes};
  }
  if (!info_of(collective).has_data) {
    return Status::invalid_argument(fmt::format("--begin and --end: a {} has no size", name_of(collective)));
  }
  if (!options.trace.empty()) return Status::invalid_argument("--trace is of one size: --size");
  if (options.svg == "-" && options.as_json) {
    return Status::invalid_argument("--json and --svg -: both are for standard output");
  }
  const std::uint64_t end = options.end > 0 ? options.end : std::max<std::uint64_t>(options.begin, 64 << 20);
  const std::uint64_t factor = options.factor > 0 ? options.factor : 2;
  std::vector<std::uint64_t> sizes{options.begin > 0 ? options.begin : std::min<std::uint64_t>(end, 8)};
  if (end < sizes.front()) return Status::invalid_argument("--end: is smaller than --begin");
  while (sizes.back() <= end / factor) sizes.push_back(sizes.back() * factor);
  if (!options.svg.empty() && sizes.size() < 2) return Status::invalid_argument("--svg: one size makes no curve");
  return sizes;
}

std::uint32_t busiest(const std::vector<double>& us) {
  return static_cast<std::uint32_t>(std::max_element(us.begin(), us.end()) - us.begin());
}

// The bottleneck: a resource of the network, or a processor.
std::string bottleneck(const Prediction& prediction, const topology::Routes& routes) {
  const schedule::Timing& t = prediction.timing;
  const std::uint32_t link = busiest(t.resource_us);
  const std::uint32_t processor = busiest(t.processor_us);
  const double link_us = t.resource_us.empty() ? 0 : t.resource_us[link];
  const double total = std::max(t.total_us, 1e-9);
  if (link_us >= t.processor_us[processor]) {
    return link_us > 0 ? fmt::format("{} {:.0f} %", routes.describe(link), 100 * link_us / total) : "nothing";
  }
  return fmt::format("a processor {:.0f} %", 100 * t.processor_us[processor] / total);
}

void print_outcome(const Outcome& one, Collective collective, double bytes, int ranks, const topology::Routes& routes) {
  if (!one.status.is_ok()) {
    std::printf("%-28s %s\n", one.entry->name, one.status.message().c_str());
    return;
  }
  const double us = one.prediction.timing.total_us;
  std::printf("%-28s %12.2f %9.2f %9.2f  %s\n", one.entry->name, us, gbytes_per_second(bytes, us),
              gbytes_per_second(bytes, us) * perf::bus_factor(collective, ranks),
              bottleneck(one.prediction, routes).c_str());
}

std::vector<std::uint32_t> by_time(const schedule::Timing& timing) {
  std::vector<std::uint32_t> order(timing.resource_us.size());
  std::iota(order.begin(), order.end(), 0U);
  std::erase_if(order, [&](std::uint32_t r) { return timing.resource_bytes[r] == 0; });
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return timing.resource_us[a] > timing.resource_us[b]; });
  return order;
}

void print_details(const Outcome& one, const Options& options, const topology::Routes& routes) {
  const schedule::Timing& t = one.prediction.timing;
  const std::vector<std::uint32_t> order = by_time(t);
  if (!order.empty()) std::printf("\n%-44s %16s %12s %7s\n", "link", "bytes", "busy (us)", "");
  for (std::size_t i = 0; i < std::min(order.size(), options.links); ++i) {
    std::printf("%-44s %16.0f %12.2f %5.1f %%\n", routes.describe(order[i]).c_str(), t.resource_bytes[order[i]],
                t.resource_us[order[i]], 100 * t.resource_us[order[i]] / std::max(t.total_us, 1e-9));
  }
  if (order.size() > options.links) std::printf("and %zu more\n", order.size() - options.links);
  const auto [first, last] = std::minmax_element(t.rank_us.begin(), t.rank_us.end());
  std::printf("\nthe first rank ends after %.2f us (rank %zd), the last one after %.2f us (rank %zd)\n", *first,
              first - t.rank_us.begin(), *last, last - t.rank_us.begin());
  std::printf("%llu messages, %zu steps, simulated in %.2f s%s\n", static_cast<unsigned long long>(t.messages),
              one.prediction.steps, one.seconds,
              one.prediction.one_host ? "; the first host stands for all, which do the same" : "");
}

// With at most `links` of the busiest links.
json outcome_json(const Outcome& one, Collective collective, std::uint64_t size, int ranks,
                  const topology::Routes& routes, std::size_t links) {
  json row = {{"algorithm", one.entry->name}, {"bytes", size}};
  const auto bytes = static_cast<double>(size);
  if (!one.status.is_ok()) return row["error"] = one.status.message(), row;
  const schedule::Timing& t = one.prediction.timing;
  row["time_us"] = t.total_us;
  row["algbw_gbs"] = gbytes_per_second(bytes, t.total_us);
  row["busbw_gbs"] = gbytes_per_second(bytes, t.total_us) * perf::bus_factor(collective, ranks);
  row["messages"] = t.messages;
  row["steps"] = one.prediction.steps;
  row["one_host_for_all"] = one.prediction.one_host;
  row["seconds_to_simulate"] = one.seconds;
  row["links"] = json::array();
  for (const std::uint32_t r : by_time(t)) {
    if (row["links"].size() == links) break;
    row["links"].push_back(
        {{"name", routes.describe(r)}, {"bytes", t.resource_bytes[r]}, {"busy_us", t.resource_us[r]}});
  }
  return row;
}

class Simulator {
 public:
  Simulator(const Options& options, Collective collective, const JobTuning& tuning, Machines machines)
      : options_(options),
        collective_(collective),
        tuning_(tuning),
        machines_(std::move(machines)),
        ranks_(static_cast<int>(machines_.graph.ranks.size())),
        routes_(machines_.graph, machines_.costs, machines_.sharing, machines_.slowed) {}

  Status run(const std::vector<std::uint64_t>& sizes) {
    const algorithms::World world = world_of(machines_);
    if (ranks_ == 0) return Status::invalid_argument("there are no hosts, so no ranks");
    if (options_.root >= ranks_) return Status::invalid_argument(fmt::format("--root must be below {}", ranks_));
    const auto entries = entries_of(options_, collective_, topology::least_ports(machines_.graph), world);
    if (!entries.is_ok()) return entries.status();
    if (!options_.trace.empty() && entries.value().size() != 1) {
      return Status::invalid_argument("--trace needs --algorithm with the name of one");
    }
    return has_sizes(options_) ? run_sizes(entries.value(), sizes) : run_one(entries.value(), sizes.front());
  }

 private:
  Status run_one(const std::vector<const AlgorithmEntry*>& entries, std::uint64_t bytes) {
    std::vector<Outcome> outcomes;
    for (const AlgorithmEntry* entry : entries) outcomes.push_back(simulate(entry, bytes));
    progress_.clear();
    std::stable_sort(outcomes.begin(), outcomes.end(), [](const Outcome& a, const Outcome& b) {
      if (a.status.is_ok() != b.status.is_ok()) return a.status.is_ok();
      return a.prediction.timing.total_us < b.prediction.timing.total_us;
    });
    const Outcome& best = outcomes.front();
    if (!best.status.is_ok()) return Status(best.status).with_context(best.entry->name);
    if (!options_.trace.empty()) {
      if (Status s = write_timeline(options_.trace, *best.entry, machines_.graph, routes_.hosts(), options_.root,
                                    best.prediction.timing);
          !s.is_ok()) {
        return s;
      }
    }
    if (!options_.as_json) return print(outcomes, bytes), Status();
    json all = about();
    all["bytes"] = bytes;
    for (const Outcome& one : outcomes) {
      all["results"].push_back(outcome_json(one, collective_, bytes, ranks_, routes_, SIZE_MAX));
    }
    return print_json(all), Status();
  }

  Status run_sizes(const std::vector<const AlgorithmEntry*>& entries, const std::vector<std::uint64_t>& sizes) {
    if (Status s = begin_drawing(); !s.is_ok()) return s;
    SizeTable table;
    for (const AlgorithmEntry* entry : entries) table.algorithms.emplace_back(entry->name);
    json all = about();
    Status failed;
    for (const std::uint64_t bytes : sizes) {
      SizeTable::Row& row = table.rows.emplace_back();
      row.bytes = bytes;
      for (const AlgorithmEntry* entry : entries) {
        const Outcome one = simulate(entry, bytes);
        row.us.push_back(one.status.is_ok() ? one.prediction.timing.total_us : std::numeric_limits<double>::infinity());
        if (!one.status.is_ok() && failed.is_ok()) failed = Status(one.status).with_context(entry->name);
        all["results"].push_back(outcome_json(one, collective_, bytes, ranks_, routes_, options_.links));
      }
    }
    progress_.clear();
    const std::vector<BestFrom> best = best_of(table);
    if (best.empty()) return failed;
    for (const BestFrom& one : best) {
      all["best"].push_back({{"from_bytes", one.bytes}, {"algorithm", table.algorithms[one.algorithm]}});
    }
    if (options_.as_json) {
      print_json(all);
    } else if (options_.svg != "-") {
      std::printf("%s %s, predicted: time in us%s\n\n%s", name_of(collective_), where().c_str(), costs_line().c_str(),
                  tools::to_text(table).c_str());
    }
    std::fflush(stdout);
    return options_.svg.empty() ? Status() : perf::draw_plot(options_.svg, to_text(all), "svg");
  }

  // Before anything is simulated, which may take long.
  [[nodiscard]] Status begin_drawing() const {
    if (options_.svg.empty()) return {};
    if (perf::bus_factor(collective_, ranks_) <= 0) {
      return Status::invalid_argument("--svg has nothing to draw: a rank alone has no bus bandwidth");
    }
    if (Status s = perf::check_plot("--svg", "what --json prints"); !s.is_ok()) return s;
    if (options_.svg == "-") return {};
    return perf::OutputFile::open(options_.svg).status();
  }

  Outcome simulate(const AlgorithmEntry* entry, std::uint64_t bytes) {
    if (progress_.shows()) progress_.show(fmt::format("simulating {}, {} bytes", entry->name, bytes));
    selection::Question question;
    question.entry = entry;
    question.root = options_.root;
    question.bytes = bytes;
    question.sharing = machines_.sharing;
    question.slowed = machines_.slowed;
    question.keeps_steps = !options_.trace.empty();
    question.most_memory_bytes = memory_limit(options_);
    Outcome outcome;
    outcome.entry = entry;
    const std::int64_t begin_ns = now_ns();
    auto prediction = selection::predict(machines_.graph, machines_.costs, question);
    outcome.seconds = static_cast<double>(now_ns() - begin_ns) / 1e9;
    outcome.status = prediction.status();
    if (prediction.is_ok()) outcome.prediction = std::move(*prediction);
    return outcome;
  }

  [[nodiscard]] std::string where() const {
    const std::size_t hosts = routes_.hosts().size();
    return fmt::format("over {} rank{} on {} host{}", ranks_, ranks_ == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s");
  }

  // Behind a line of text.
  [[nodiscard]] std::string costs_line() const { return tuning_.about.empty() ? "" : "\n" + tuning_.about; }

  void print(const std::vector<Outcome>& outcomes, std::uint64_t bytes) const {
    std::printf("%s of %llu bytes %s, predicted%s\n\n", name_of(collective_), static_cast<unsigned long long>(bytes),
                where().c_str(), costs_line().c_str());
    std::printf("%-28s %12s %9s %9s  %s\n%-28s %12s %9s %9s\n", "algorithm", "time", "algbw", "busbw", "busiest", "",
                "(us)", "(GB/s)", "(GB/s)");
    for (const Outcome& one : outcomes) {
      print_outcome(one, collective_, static_cast<double>(bytes), ranks_, routes_);
    }
    if (outcomes.size() > 1) std::printf("\nthe best of them, %s:", outcomes.front().entry->name);
    print_details(outcomes.front(), options_, routes_);
  }

  [[nodiscard]] json about() const {
    json all = {{"format", "tutti simulation"},       {"version", 1},
                {"collective", name_of(collective_)}, {"ranks", ranks_},
                {"hosts", routes_.hosts().size()},    {"results", json::array()}};
    if (tuning_.fitted == nullptr) return all;
    const selection::JobKind& kind = tuning_.fitted->kind;
    all["costs_of"] = {{"hosts", kind.hosts}, {"transports", kind.transports}, {"ranks_per_cpu", kind.ranks_per_cpu}};
    return all;
  }
  static std::string to_text(const json& all) { return all.dump(2, ' ', false, json::error_handler_t::replace); }
  static void print_json(const json& all) { std::printf("%s\n", to_text(all).c_str()); }

  const Options& options_;
  Collective collective_;
  const JobTuning& tuning_;
  Machines machines_;
  int ranks_;
  topology::Routes routes_;
  perf::ProgressLine progress_;
};

Status simulate(const Options& options) {
  const Result<Collective> collective = parse_collective(options.collective);
  if (!collective.is_ok()) return collective.status();
  const auto sizes = sizes_of(options, collective.value());
  if (!sizes.is_ok()) return sizes.status();
  auto machines = make_machines(options.cluster);
  if (!machines.is_ok()) return machines.status();
  const Result<Settings> settings = settings_from_environment();
  if (!settings.is_ok()) return settings.status();
  const auto tuning = apply_tuning(settings.value().tuning, *machines);
  if (!tuning.is_ok()) return tuning.status();
  return Simulator(options, collective.value(), *tuning.value(), std::move(*machines)).run(sizes.value());
}

int run_simulate(const Options& options) {
  const Status status = simulate(options);
  if (status.is_ok()) return kExitOk;
  std::fprintf(stderr, "tutti simulate: %s\n", status.message().c_str());
  const bool usage = status.code() == Code::kInvalidArgument || status.code() == Code::kInvalidUsage;
  return usage ? kExitUsage : kExitFailure;
}

void add_size_options(CLI::App& command, Options& options) {
  CLI::Option* const one =
      command.add_option("-s,--size", options.bytes, "Bytes of the whole vector, all blocks together: 8, 64K, 1M (1M)")
          ->transform(perf::SizeValue());
  const auto bound = [&](const char* name, std::uint64_t& value, const char* help) {
    command.add_option(name, value, help)
        ->transform(perf::SizeValue())
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 50))
        ->excludes(one);
  };
  bound("-b,--begin", options.begin, "Compare the algorithms over sizes, from this one (8)");
  bound("-e,--end", options.end, "Up to this one (64M, or --begin if that is larger)");
  command.add_option("-f,--factor", options.factor, "Multiply by this between sizes (2)")
      ->check(CLI::Range(std::uint64_t{2}, std::uint64_t{1} << 30));
  command
      .add_option("--svg", options.svg,
                  "Draw time and bus bandwidth over these sizes into this file; - is standard output (needs "
                  "matplotlib)")
      ->type_name("FILE");
}

}  // namespace

Run add_simulate(CLI::App& app, CLI::App** chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("simulate", "Predict the time of a collective on described machines");
  command->add_option("--collective", options->collective, "One of " + all_collectives())
      ->type_name("COLLECTIVE")
      ->capture_default_str();
  command->add_option("collective", options->collective)->group("");  // as tutti explain has it
  command
      ->add_option("--algorithm", options->algorithm,
                   "Name of the algorithm, a file of one (docs/schedules.md), or all: those that serve these ranks")
      ->type_name("ALGORITHM|FILE|all")
      ->capture_default_str();
  add_size_options(*command, *options);
  command->add_option("--root", options->root, "Root, for collectives with a root")
      ->check(CLI::Range(0, topology::kMostRanks));
  add_cluster_options(*command, options->cluster);
  perf::refuse_option(*command, "-n,--ranks", kRanksByHost);
  command->add_option("--links", options->links, "Number of busiest links to list")->capture_default_str();
  command->add_option("--trace", options->trace, "Write a timeline that Perfetto opens to this file")
      ->type_name("FILE");
  command->add_flag("--json", options->as_json, "As JSON, with all links; over sizes, with the links of --links");
  command->add_option("--memory", options->memory_gib, "Memory limit in GiB (half of the free memory)")
      ->check(CLI::PositiveNumber);
  command->footer(
      "Runs the schedules of all ranks with time in place of data. Nothing is sent; the machines need not exist.\nWith "
      "TUTTI_TUNING, messages have the costs that tutti tune fitted to the nearest job over the same transports.\n"
      "Exit status: 0 success, 1 a file could not be written, 2 invalid arguments or settings.");
  *chosen = command;
  return [options] { return run_simulate(*options); };
}

}  // namespace tutti::internal::tools
