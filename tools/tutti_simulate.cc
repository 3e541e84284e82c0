// tutti simulate: how long a collective would take on machines that need not exist.
#include <fmt/core.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cluster_options.h"
#include "command.h"
#include "names.h"
#include "perf/measure.h"
#include "topology/prediction.h"
#include "trace.h"

namespace tutti::internal::tools {
namespace {

using algorithms::AlgorithmEntry;
using nlohmann::json;
using topology::Prediction;

struct Options {
  ClusterOptions cluster;
  std::string collective = "all_reduce";
  std::string algorithm = "all";
  std::uint64_t bytes = 1 << 20;
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

Result<std::vector<const AlgorithmEntry*>> entries_of(const Options& options, Collective collective,
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
  for (const AlgorithmEntry* entry : algorithms::candidates(collective)) {
    if (entry->supports(world)) entries.push_back(entry);
  }
  return entries;
}

// On a terminal, the line that the result will replace.
void show_progress(const char* name) {
  if (isatty(STDERR_FILENO) == 1) std::fprintf(stderr, "simulating %-40s\r", name);
}
void end_progress() {
  if (isatty(STDERR_FILENO) == 1) std::fprintf(stderr, "%-52s\r", "");
}

std::uint32_t busiest(const std::vector<double>& us) {
  return static_cast<std::uint32_t>(std::max_element(us.begin(), us.end()) - us.begin());
}

// What takes longest: a resource of the network, or a processor.
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

json outcome_json(const Outcome& one, Collective collective, double bytes, int ranks, const topology::Routes& routes) {
  json row = {{"algorithm", one.entry->name}};
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
    row["links"].push_back(
        {{"name", routes.describe(r)}, {"bytes", t.resource_bytes[r]}, {"busy_us", t.resource_us[r]}});
  }
  return row;
}

class Simulator {
 public:
  Simulator(const Options& options, Collective collective, Machines machines)
      : options_(options),
        collective_(collective),
        machines_(std::move(machines)),
        routes_(machines_.graph, machines_.costs, machines_.sharing, machines_.slowed) {}

  Status run() {
    const int ranks = static_cast<int>(machines_.graph.ranks.size());
    const algorithms::World world = world_of(machines_);
    if (ranks == 0) return Status::invalid_argument("there are no hosts, so no ranks");
    if (options_.root >= ranks) return Status::invalid_argument(fmt::format("--root must be below {}", ranks));
    const auto entries = entries_of(options_, collective_, world);
    if (!entries.is_ok()) return entries.status();
    if (!options_.trace.empty() && entries.value().size() != 1) {
      return Status::invalid_argument("--trace needs --algorithm with the name of one");
    }
    for (const AlgorithmEntry* entry : entries.value()) outcomes_.push_back(simulate(entry));
    end_progress();
    std::stable_sort(outcomes_.begin(), outcomes_.end(), [](const Outcome& a, const Outcome& b) {
      if (a.status.is_ok() != b.status.is_ok()) return a.status.is_ok();
      return a.prediction.timing.total_us < b.prediction.timing.total_us;
    });
    if (Status s = outcomes_.front().status; !s.is_ok()) return s.with_context(outcomes_.front().entry->name);
    if (!options_.trace.empty()) {
      if (Status s = write_trace(); !s.is_ok()) return s;
    }
    options_.as_json ? print_json(ranks) : print(ranks);
    return {};
  }

 private:
  Outcome simulate(const AlgorithmEntry* entry) {
    show_progress(entry->name);
    topology::Question question;
    question.entry = entry;
    question.root = options_.root;
    question.bytes = options_.bytes;
    question.sharing = machines_.sharing;
    question.slowed = machines_.slowed;
    question.keeps_steps = !options_.trace.empty();
    question.most_memory_bytes = memory_limit(options_);
    Outcome outcome;
    outcome.entry = entry;
    const std::int64_t begin_ns = now_ns();
    auto prediction = topology::predict(machines_.graph, machines_.costs, question);
    outcome.seconds = static_cast<double>(now_ns() - begin_ns) / 1e9;
    outcome.status = prediction.status();
    if (prediction.is_ok()) outcome.prediction = std::move(*prediction);
    return outcome;
  }

  Status write_trace() {
    const Outcome& one = outcomes_.front();
    return write_timeline(options_.trace, *one.entry, machines_.graph, routes_.hosts(), options_.root,
                          one.prediction.timing);
  }

  void print(int ranks) const {
    const auto hosts = routes_.hosts().size();
    std::printf("%s of %llu bytes over %d rank%s on %zu host%s, predicted\n\n", name_of(collective_),
                static_cast<unsigned long long>(options_.bytes), ranks, ranks == 1 ? "" : "s", hosts,
                hosts == 1 ? "" : "s");
    std::printf("%-28s %12s %9s %9s  %s\n%-28s %12s %9s %9s\n", "algorithm", "time", "algbw", "busbw", "busiest", "",
                "(us)", "(GB/s)", "(GB/s)");
    const auto bytes = static_cast<double>(options_.bytes);
    for (const Outcome& one : outcomes_) print_outcome(one, collective_, bytes, ranks, routes_);
    if (outcomes_.size() > 1) std::printf("\nthe best of them, %s:", outcomes_.front().entry->name);
    print_details(outcomes_.front(), options_, routes_);
  }

  void print_json(int ranks) const {
    json all = {{"format", "tutti simulation"}, {"version", 1},   {"collective", name_of(collective_)},
                {"bytes", options_.bytes},      {"ranks", ranks}, {"hosts", routes_.hosts().size()},
                {"results", json::array()}};
    for (const Outcome& one : outcomes_) {
      all["results"].push_back(outcome_json(one, collective_, static_cast<double>(options_.bytes), ranks, routes_));
    }
    std::printf("%s\n", all.dump(2, ' ', false, json::error_handler_t::replace).c_str());
  }

  const Options& options_;
  Collective collective_;
  Machines machines_;
  topology::Routes routes_;
  std::vector<Outcome> outcomes_;
};

int run_simulate(Options options) {
  Status status;
  const Result<Collective> collective = parse_collective(options.collective);
  if (!collective.is_ok()) {
    status = collective.status();
  } else if (status = fit_size(collective.value(), &options.bytes); status.is_ok()) {
    auto machines = make_machines(options.cluster);
    status = machines.is_ok() ? Simulator(options, collective.value(), std::move(*machines)).run() : machines.status();
  }
  if (status.is_ok()) return kExitOk;
  std::fprintf(stderr, "tutti simulate: %s\n", status.message().c_str());
  return status.code() == Code::kInvalidArgument ? kExitUsage : kExitFailure;
}

}  // namespace

Run add_simulate(CLI::App& app, CLI::App** chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("simulate", "Compute how long a collective takes on given machines");
  command->add_option("--collective", options->collective, "One of " + all_collectives())->capture_default_str();
  command
      ->add_option("--algorithm", options->algorithm,
                   "Its name, a file of one (docs/schedules.md), or all that serve these ranks")
      ->capture_default_str();
  command->add_option("-s,--size", options->bytes, "Bytes of the whole vector, all blocks together: 8, 64K, 1M (1M)")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--root", options->root, "Root, where the collective has one")
      ->check(CLI::Range(0, topology::kMostRanks));
  add_cluster_options(*command, options->cluster);
  command->add_option("--links", options->links, "How many links to list")->capture_default_str();
  command->add_option("--trace", options->trace, "Write a timeline that Perfetto opens to this file");
  command->add_flag("--json", options->as_json, "As JSON, with all links");
  command->add_option("--memory", options->memory_gib, "GiB that it may take (half of what is free)")
      ->check(CLI::PositiveNumber);
  command->footer(
      "Runs the schedules of all ranks with time in place of data. Nothing is sent; the machines need not exist.\n"
      "Exit status: 0 success, 1 a file could not be written, 2 invalid arguments.");
  *chosen = command;
  return [options] { return run_simulate(*options); };
}

}  // namespace tutti::internal::tools
