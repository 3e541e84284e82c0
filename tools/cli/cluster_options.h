// The machines on which a collective is computed: from a file, or described on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "selection/job_model.h"
#include "selection/prediction.h"
#include "topology/cluster.h"

namespace tutti::internal::tools {

// None: not given, which is not the same as what holds then: beside a file, what is given must have an effect.
struct ClusterOptions {
  std::string topology;  // a file; empty: none
  std::optional<int> hosts;
  std::optional<int> per_host;
  std::optional<int> numa_nodes;
  std::optional<int> ports;
  std::optional<std::string> link;
  std::optional<std::string> numa_link;
  std::optional<std::string> fat_tree;
  std::optional<std::string> dragonfly;
  std::optional<std::string> sites;
  std::optional<std::string> transport;
  std::optional<int> cores;
  std::vector<std::string> slow;
};

// The refusal of -n if the options describe machines.
inline constexpr const char* kRanksByHost = "ranks are counted by host: --per-host 8, and --hosts 4 for several";
// Adds the options to the subcommand.
void add_cluster_options(CLI::App& command, ClusterOptions& options);

// The machines that the options describe. The graph has ranks and is valid.
struct Machines {
  topology::Graph graph;
  topology::MachineCosts costs;
  topology::Slowed slowed;
  topology::Sharing sharing;
  bool by_verbs = false;  // between hosts
};
// kInvalidArgument names the option, or the file with line and field.
Result<Machines> make_machines(const ClusterOptions& options);
// Those of the graph, with the costs and the slow parts that the options say.
Result<Machines> make_machines(const ClusterOptions& options, topology::Graph graph);

// On the host that has most, at least 1.
double ranks_per_cpu(const Machines& machines);
// The costs without a measurement.
selection::JobCosts default_costs(const algorithms::World& world, bool by_verbs, topology::Sharing sharing);
// The graph's ranks, on their hosts.
algorithms::World world_of(const Machines& machines);

// The entries for a job of such ranks in the file of TUTTI_TUNING, if it is set.
struct JobTuning {
  selection::Tuning tuning;
  const selection::TunedJob* tuned = nullptr;   // the fastest algorithms of such jobs; null: it has none of the kind
  const selection::TunedJob* fitted = nullptr;  // the nearest one's costs; null: it has none over the same transports
  std::string about;                            // whose costs are taken, a line for people; empty: there is no file
};
// As a job's rank 0 reads it. The machines get the fitted costs. kInvalidUsage as selection::read_tuning() has it.
Result<std::unique_ptr<const JobTuning>> apply_tuning(const std::string& file, Machines& machines);

// The model that selection uses in a communicator of these ranks. `fitted`: as in selection::use_fitted().
std::shared_ptr<const selection::JobModel> model_of(const Machines& machines, const selection::TunedJob* fitted);

// "100Gb/s" or "12.5GB/s", optionally followed by ",2us", or the latency alone. The other part keeps its value.
Status parse_speed(const std::string& option, const std::string& text, topology::Speed& speed);

}  // namespace tutti::internal::tools
