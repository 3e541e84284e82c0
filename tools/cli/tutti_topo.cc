// tutti topo: what this machine has to communicate with, or other machines have, as a tree or a picture.
#include <fmt/core.h>

#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "algorithms/catalog.h"
#include "base/config.h"
#include "cluster_options.h"
#include "command.h"
#include "names.h"
#include "perf/harness/refusal.h"
#include "perf/harness/size_value.h"
#include "schedule/layout.h"
#include "selection/select.h"
#include "tools/drawing/picture.h"
#include "topo_facts.h"
#include "topo_job.h"
#include "topology/graph_json.h"

namespace tutti::internal::tools {
namespace {

struct Options {
  ClusterOptions cluster;
  bool as_json = false;
  std::string svg;
  std::string dot;
  std::string collective;
  std::string algorithm;
  std::uint64_t bytes = 1 << 20;
  int root = 0;
};

// The bytes that each rank sends to each other rank in all steps.
Result<std::vector<Flow>> flows_of(const algorithms::AlgorithmEntry& entry, const algorithms::World& world, int root,
                                   std::uint64_t bytes) {
  std::map<std::pair<int, int>, double> sums;
  for (int rank = 0; rank < world.ranks; ++rank) {
    const auto schedule = make_schedule(entry, world, rank, root);
    if (!schedule.is_ok()) return schedule.status();
    const schedule::Layout layout(schedule.value().shape, bytes / schedule.value().shape.blocks, 1);
    for (const schedule::Step& s : schedule.value().steps) {
      if (s.kind != schedule::StepKind::kSend || s.chunks == 0) continue;
      sums[{rank, s.peer}] += static_cast<double>(layout.bytes(s.source_range()).size);
    }
  }
  std::vector<Flow> flows;
  for (const auto& [ends, sum] : sums) flows.push_back({ends.first, ends.second, sum});
  return flows;
}

// The one that is named, or that a job with these settings would select.
Result<const algorithms::AlgorithmEntry*> entry_for(const Options& options, Collective collective,
                                                    const Machines& machines) {
  if (!options.algorithm.empty()) {
    const auto* const entry = algorithms::find(collective, options.algorithm);
    if (entry == nullptr) return no_algorithm(options.algorithm, collective);
    return entry;
  }
  const Result<Settings> settings = settings_from_environment();
  if (!settings.is_ok()) return settings.status();
  Machines tuned = machines;
  const auto tuning = apply_tuning(settings.value().tuning, tuned);
  if (!tuning.is_ok()) return tuning.status();
  return selection::select(collective, *model_of(tuned, tuning.value()->fitted), options.bytes,
                           settings.value().algorithm, schedule::Order::kAny, tuning.value()->tuned);
}

Result<Overlay> overlay_of(Options options, const Machines& machines) {
  constexpr int kMostRanks = 4096;
  if (options.collective.empty()) return Overlay{};
  const Result<Collective> collective = parse_collective(options.collective);
  if (!collective.is_ok()) return collective.status();
  if (Status s = fit_size(collective.value(), &options.bytes); !s.is_ok()) return s;
  const algorithms::World world = world_of(machines);
  if (world.ranks < 1) return Status::invalid_argument("--collective: there are no ranks; --per-host places some");
  if (world.ranks > kMostRanks) return Status::invalid_argument("--collective: more than 4096 ranks cannot be drawn");
  if (options.root >= world.ranks) return Status::invalid_argument(fmt::format("--root must be below {}", world.ranks));
  auto entry = entry_for(options, collective.value(), machines);
  if (!entry.is_ok()) return Status::invalid_argument(entry.status().message());
  auto flows = flows_of(**entry, world, options.root, options.bytes);
  if (!flows.is_ok()) return flows.status();
  return Overlay{fmt::format("{} of {}, {} rank{}: {}", name_of(collective.value()),
                             text_of_bytes(static_cast<double>(options.bytes)), world.ranks,
                             world.ranks == 1 ? "" : "s", (*entry)->name),
                 std::move(*flows)};
}

// Another machine's, or this one's.
bool is_this_machine(const ClusterOptions& options) {
  return options.topology.empty() && options.hosts.value_or(1) == 1 && !options.fat_tree && !options.dragonfly &&
         !options.sites && options.numa_nodes.value_or(1) == 1 && options.ports.value_or(1) == 1;
}

// `facts`: of this machine, where that is shown; null: it is not.
Status show_machines(const Options& options, const Result<Machines>& machines, const TopoFacts* facts) {
  if (!machines.is_ok()) return machines.status();
  const topology::Graph& graph = machines.value().graph;
  const Result<Overlay> overlay = overlay_of(options, machines.value());
  if (!overlay.is_ok()) return overlay.status();
  if (!options.svg.empty()) {
    const auto svg = to_svg(graph, overlay.value());
    if (!svg.is_ok()) return svg.status();
    if (Status s = write_text(options.svg, svg.value()); !s.is_ok()) return s;
  }
  if (!options.dot.empty()) {
    if (Status s = write_text(options.dot, to_dot(graph, overlay.value())); !s.is_ok()) return s;
  }
  if (options.as_json) {
    if (facts == nullptr) return write_text("-", to_json(graph));
    auto all = nlohmann::ordered_json::parse(to_json(graph));
    all["facts"] = facts_json(*facts);
    return write_text("-", all.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }
  if (!options.svg.empty() || !options.dot.empty()) return {};
  std::printf("%s", to_tree(graph, overlay.value()).c_str());
  if (facts == nullptr || !options.collective.empty()) return {};
  std::printf("\n");
  print_facts(*facts);
  return {};
}

Status show(const Options& options) {
  if (!is_this_machine(options.cluster)) return show_machines(options, make_machines(options.cluster), nullptr);
  const Result<TopoFacts> facts = read_topo_facts();
  if (!facts.is_ok()) return facts.status();
  auto graph = topology::host_graph(host_facts(facts.value()));
  if (!graph.is_ok()) return graph.status();
  auto job = gather_job(*graph);
  if (!job.is_ok()) return job.status();
  if (job->has_value()) {
    if ((**job).rank > 0) return {};
    return show_machines(options, make_machines(options.cluster, std::move((**job).graph)), nullptr);
  }
  if (options.cluster.per_host) topology::place_ranks(*graph, *options.cluster.per_host);
  return show_machines(options, make_machines(options.cluster, std::move(*graph)), &facts.value());
}

int run_topo(const Options& options) {
  const Status status = show(options);
  if (status.is_ok()) return kExitOk;
  std::fprintf(stderr, "tutti topo: %s\n", status.message().c_str());
  const bool usage = status.code() == Code::kInvalidArgument || status.code() == Code::kInvalidUsage;
  return usage ? kExitUsage : kExitFailure;
}

}  // namespace

Run add_topo(CLI::App& app, CLI::App** chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("topo", "Show this machine, or described ones: processors, networks, RDMA ports, GPUs, ranks");
  command->add_flag("--json", options->as_json, "As JSON, for TUTTI_TOPOLOGY and --topology; unknown facts are null");
  command->add_option("--svg", options->svg, "Draw it into this file; - is standard output")->type_name("FILE");
  command->add_option("--dot", options->dot, "Write it for Graphviz into this file; - is standard output")
      ->type_name("FILE");
  command
      ->add_option("--collective", options->collective,
                   "Show the messages of this collective between ranks: " + all_collectives())
      ->type_name("COLLECTIVE");
  command->add_option("--algorithm", options->algorithm, "Use this algorithm in place of the selected one")
      ->type_name("ALGORITHM");
  command->add_option("-s,--size", options->bytes, "Bytes of the whole vector: 8, 64K, 1M (1M)")
      ->transform(perf::SizeValue());
  command->add_option("--root", options->root, "Root, for collectives with a root")
      ->check(CLI::Range(0, topology::kMostRanks));
  add_cluster_options(*command, options->cluster);
  perf::refuse_option(*command, "-n,--ranks", kRanksByHost);
  command->footer(
      "Without a description it shows this machine, or, under a launcher (mpirun, srun, torchrun), once the machines "
      "of the\nwhole job. For each RDMA port of this machine it shows whether a rank that is started in the same way "
      "would use it,\nand why. TUTTI_VERBS, HWLOC_XMLFILE and HWLOC_SYNTHETIC apply.\n"
      "Exit status: 0 success, 1 a file could not be written, 2 invalid arguments, settings or files.");
  *chosen = command;
  return [options] { return run_topo(*options); };
}

}  // namespace tutti::internal::tools
