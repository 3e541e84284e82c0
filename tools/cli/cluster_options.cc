#include "cluster_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "base/config.h"
#include "base/json_file.h"
#include "selection/select.h"
#include "topology/graph_json.h"
#include "topology/nccl_xml.h"
#include "transport/shm/costs.h"
#include "transport/tcp/costs.h"
#include "transport/verbs/costs.h"

namespace tutti::internal::tools {
namespace {

using topology::Cluster;
using topology::Fabric;
using topology::Speed;

// A number from the beginning of the text, which becomes what stands behind it.
bool take_number(std::string& text, double& number) {
  // No sign, no hexadecimal digits.
  if (text.empty() || (std::isdigit(static_cast<unsigned char>(text[0])) == 0 && text[0] != '.')) return false;
  if (text.size() > 1 && (text[1] == 'x' || text[1] == 'X')) return false;
  char* end = nullptr;
  number = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !std::isfinite(number) || number < 0) return false;
  text.erase(0, static_cast<std::size_t>(end - text.c_str()));
  return true;
}

Status wrong(const std::string& option, const std::string& text, const char* expected) {
  return Status::invalid_argument(fmt::format("{}: \"{}\" is not {}", option, text, expected));
}

std::vector<std::string> words_of(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);) words.push_back(word);
  return words;
}

// PARTS or PARTS:OVERSUBSCRIPTION.
Status parse_parts(const std::string& option, const std::string& text, Cluster& cluster) {
  constexpr const char* kExpected = "COUNT or COUNT:OVERSUBSCRIPTION";
  const std::vector<std::string> words = words_of(text, ':');
  const auto parts = words.empty() ? std::nullopt : parse_integer(words[0], 1, topology::kMostHosts);
  if (!parts || words.size() > 2) return wrong(option, text, kExpected);
  cluster.parts = static_cast<int>(*parts);
  if (text.back() == ':') return wrong(option, text, kExpected);
  if (words.size() < 2) return {};
  std::string rest = words[1];
  if (!take_number(rest, cluster.oversubscription) || !rest.empty()) return wrong(option, text, kExpected);
  return {};
}

Status read_fabric(const ClusterOptions& options, Cluster& cluster) {
  if (options.fat_tree.has_value() + options.dragonfly.has_value() + options.sites.has_value() > 1) {
    return Status::invalid_argument("only one of --fat-tree, --dragonfly and --sites describes a network");
  }
  if (options.fat_tree) {
    cluster.fabric = Fabric::kFatTree;
    return parse_parts("--fat-tree", *options.fat_tree, cluster);
  }
  if (options.dragonfly) {
    cluster.fabric = Fabric::kDragonfly;
    return parse_parts("--dragonfly", *options.dragonfly, cluster);
  }
  if (!options.sites) return {};
  cluster.fabric = Fabric::kSites;
  const std::size_t comma = options.sites->find(',');
  const auto count = parse_integer(options.sites->substr(0, comma), 1, topology::kMostHosts);
  if (!count) return wrong("--sites", *options.sites, "COUNT or COUNT,RATE,LATENCY");
  cluster.parts = static_cast<int>(*count);
  if (comma == std::string::npos) return {};
  return parse_speed("--sites", options.sites->substr(comma + 1), cluster.between_sites);
}

// rank=17:0.5 or link=PATH:0.1.
Status read_slow(const std::string& text, Machines& machines) {
  constexpr const char* kExpected = "rank=RANK:FACTOR or link=PATH:FACTOR, with a factor above 0 and up to 1";
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return wrong("--slow", text, kExpected);
  std::string rest = text.substr(colon + 1);
  double factor = 0;
  if (!take_number(rest, factor) || !rest.empty() || factor <= 0 || factor > 1) return wrong("--slow", text, kExpected);
  const std::string what = text.substr(0, colon);
  if (what.starts_with("rank=")) {
    const auto ranks = static_cast<std::int64_t>(machines.graph.ranks.size());
    const auto rank = parse_integer(what.substr(5), 0, ranks - 1);
    if (!rank) return wrong("--slow", text, fmt::format("that of a rank from 0 to {}", ranks - 1).c_str());
    machines.slowed.ranks[static_cast<int>(*rank)] = factor;
    return {};
  }
  if (!what.starts_with("link=")) return wrong("--slow", text, kExpected);
  const std::int32_t node = machines.graph.find(what.substr(5));
  if (node < 0)
    return wrong("--slow", text, "the path of something that there is (tutti topo with the same options shows them)");
  const topology::Node& slow = machines.graph.nodes[static_cast<std::size_t>(node)];
  if (slow.up.gbytes_per_second <= 0 && slow.out.gbytes_per_second <= 0) {
    return wrong("--slow", text, "the path of something that has a rate: a port, or what has one to where it is in");
  }
  machines.slowed.nodes[node] = factor;
  return {};
}

// By what it begins with, behind a byte order mark: XML by "<".
Result<topology::Graph> read_any(const std::string& path) {
  auto text = read_text_file(path, kMostJsonBytes);
  if (!text.is_ok()) return text.status();
  if ((*text).starts_with("\xef\xbb\xbf")) (*text).erase(0, 3);
  const std::size_t first = (*text).find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return Status::invalid_argument(path + ": the file is empty");
  if ((*text)[first] == '<') return topology::parse_nccl_topology(*text, path);
  auto file = parse_json(std::move(*text), path, topology::kTopologyFormat, topology::kTopologyVersion);
  if (!file.is_ok()) return file.status();
  return topology::graph_of(*file);
}

// Of an option: how it is written, and whether it is given.
using Given = std::pair<const char*, bool>;

// That those of the options that are given have no effect; ok where none is.
Status without_effect(const ClusterOptions& options, const std::vector<Given>& some, const char* why) {
  std::string names;
  for (const auto& [name, given] : some) {
    if (given) names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  if (names.empty()) return {};
  return Status::invalid_argument(
      fmt::format("{}: no effect beside {} (--topology, or TUTTI_TOPOLOGY), {}", names, options.topology, why));
}

// Whether all that is given says something that the file leaves open.
Status check_effects(const ClusterOptions& options, const Cluster& cluster, const topology::Graph& graph) {
  const std::vector<Given> inside = {{"--numa-nodes", options.numa_nodes.has_value()},
                                     {"--ports", options.ports.has_value()},
                                     {"--numa-link", options.numa_link.has_value()}};
  const std::vector<Given> between = {{"--link", options.link.has_value()},
                                      {"--transport", options.transport.has_value()}};
  if (graph.nodes.front().kind != topology::NodeKind::kHost) {
    std::vector<Given> network = inside;
    network.insert(network.end(), {{"--hosts", options.hosts.has_value()},
                                   {"--link", options.link.has_value()},
                                   {"--fat-tree", options.fat_tree.has_value()},
                                   {"--dragonfly", options.dragonfly.has_value()},
                                   {"--sites", options.sites.has_value()}});
    if (Status s = without_effect(options, network, "which has its hosts and networks already"); !s.is_ok()) return s;
    const bool has_ranks = options.per_host.has_value() && !graph.ranks.empty();
    if (Status s = without_effect(options, {{"--per-host", has_ranks}}, "which has ranks already"); !s.is_ok())
      return s;
    const bool is_alone = options.transport.has_value() && graph.hosts().size() < 2;
    return without_effect(options, {{"--transport", is_alone}}, "which has one host");
  }
  if (Status s = without_effect(options, inside, "which says what its host consists of"); !s.is_ok()) return s;
  if (cluster.hosts == 1) return without_effect(options, between, "which has one host, and --hosts asks for no more");
  // Of a fat tree and a dragonfly the ways between switches have the latency of a port.
  const bool spreads = cluster.fabric == Fabric::kFatTree || cluster.fabric == Fabric::kDragonfly;
  const bool open = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const topology::Node& node) {
    return node.kind == topology::NodeKind::kPort && node.out == Speed{};
  });
  return without_effect(options, {{"--link", options.link.has_value() && !spreads && !open}},
                        "which has no port of unknown speed");
}

// As the file has it; a single host as many times as is asked for.
Result<topology::Graph> graph_of_file(const ClusterOptions& options, const Cluster& cluster) {
  auto graph = read_any(options.topology);
  if (!graph.is_ok()) return graph;
  if (Status s = check_effects(options, cluster, *graph); !s.is_ok()) return s;
  const bool is_host = (*graph).nodes.front().kind == topology::NodeKind::kHost;
  if (is_host && (options.per_host || (*graph).ranks.empty())) {
    const auto gpus = std::count_if((*graph).nodes.begin(), (*graph).nodes.end(),
                                    [](const auto& node) { return node.kind == topology::NodeKind::kGpu; });
    topology::place_ranks(*graph, options.per_host.value_or(std::max(1, static_cast<int>(gpus))));
  }
  if (is_host && cluster.hosts == 1 && cluster.fabric == Fabric::kSwitch) return graph;
  if (!is_host && (*graph).ranks.empty()) {
    for (const std::int32_t host : (*graph).hosts()) {
      (*graph).ranks.insert((*graph).ranks.end(), static_cast<std::size_t>(cluster.ranks_per_host), host);
    }
  }
  return is_host ? topology::make_cluster(cluster, *graph) : std::move(graph);
}

Result<topology::Graph> make_graph(const ClusterOptions& options) {
  Cluster cluster;
  cluster.hosts = options.hosts.value_or(1);
  cluster.ranks_per_host = options.per_host.value_or(1);
  cluster.numa_nodes = options.numa_nodes.value_or(1);
  cluster.ports = options.ports.value_or(1);
  cluster.cores = options.cores.value_or(0);
  if (options.link) {
    if (Status s = parse_speed("--link", *options.link, cluster.port); !s.is_ok()) return s;
  }
  if (options.numa_link) {
    if (Status s = parse_speed("--numa-link", *options.numa_link, cluster.numa); !s.is_ok()) return s;
  }
  if (Status s = read_fabric(options, cluster); !s.is_ok()) return s;
  return options.topology.empty() ? topology::make_cluster(cluster) : graph_of_file(options, cluster);
}

// Between kernels that write into each other's memory: an H200, all-reduce of 8 B over two ranks on one device, and
// what its memory moves (docs/benchmarks.md). Links have their own rates.
const MessageCosts kBetweenDevices = {3, 0.5, 0, 0, 1 << 18, 1 << 22};
const topology::LocalCosts kDevice = {7e-7, 5e-7};

// "0-3,8": 5. Zero for a text that is not such a list.
int count_processors(const std::string& list) {
  int count = 0;
  for (const std::string& part : words_of(list, ',')) {
    const std::size_t dash = part.find('-');
    const auto first = parse_integer(part.substr(0, dash), 0, 1 << 20);
    const auto last = dash == std::string::npos ? first : parse_integer(part.substr(dash + 1), 0, 1 << 20);
    if (!first || !last || *last < *first) return 0;
    count += static_cast<int>(*last - *first) + 1;
  }
  return count;
}

// Of the host that has fewest, of those with ranks, as its NUMA nodes say; 0: unknown.
int least_processors(const topology::Graph& graph) {
  std::map<std::int32_t, int> processors;  // by host
  for (const std::int32_t place : graph.ranks) processors[graph.host_of(place)] = 0;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].kind != topology::NodeKind::kNumaNode) continue;
    const auto host = processors.find(graph.host_of(static_cast<std::int32_t>(n)));
    if (host != processors.end()) host->second += count_processors(graph.nodes[n].processors);
  }
  if (processors.empty()) return 0;
  return std::min_element(processors.begin(), processors.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->second;
}

double ranks_per_cpu_of(const algorithms::World& world, topology::Sharing sharing) {
  const bool together = sharing.one_machine || world.hosts.empty();
  const auto most = static_cast<double>(together ? static_cast<std::size_t>(world.ranks) : world.hosts.largest());
  return sharing.cores > 0 ? std::max(1.0, most / sharing.cores) : 1;
}

}  // namespace

Status parse_speed(const std::string& option, const std::string& text, Speed& speed) {
  constexpr const char* kExpected =
      "a rate (100Gb/s, 12.5GB/s), a latency (2us, 30ms), or both with a comma between them";
  const std::vector<std::string> words = words_of(text, ',');
  if (words.empty() || words.size() > 2 || text.back() == ',') return wrong(option, text, kExpected);
  for (std::string word : words) {
    double number = 0;
    if (!take_number(word, number)) return wrong(option, text, kExpected);
    const bool is_rate = word.ends_with("/s") || word.ends_with("bps");
    if (is_rate && (number < 1e-6 || number > 1e9)) return wrong(option, text, "a rate that a link can have");
    if (word == "Gb/s" || word == "Gbps") {
      speed.gbytes_per_second = number / 8;
    } else if (word == "Mb/s" || word == "Mbps") {
      speed.gbytes_per_second = number / 8000;
    } else if (word == "GB/s") {
      speed.gbytes_per_second = number;
    } else if (word == "us") {
      speed.latency_us = number;
    } else if (word == "ms") {
      speed.latency_us = number * 1e3;
    } else {
      return wrong(option, text, kExpected);
    }
  }
  return {};
}

void add_cluster_options(CLI::App& command, ClusterOptions& options) {
  const auto text = [&](const char* name, std::optional<std::string>& value, const char* help) {
    return command.add_option(name, value, help)->group("Machines");
  };
  const auto number = [&](const char* name, auto& value, int least, int most, const char* help) {
    return command.add_option(name, value, help)->check(CLI::Range(least, most))->group("Machines");
  };
  command
      .add_option("--topology", options.topology,
                  "A file: tutti's JSON, or NCCL's XML; --hosts multiplies a single host")
      ->envname("TUTTI_TOPOLOGY")
      ->check(CLI::ExistingFile)
      ->group("Machines");
  number("--hosts", options.hosts, 1, topology::kMostHosts, "Equal hosts (1)");
  number("--per-host", options.per_host, 1, topology::kMostRanks, "Ranks of each host (its GPUs, or 1)");
  number("--numa-nodes", options.numa_nodes, 1, 64, "NUMA nodes of a host (1)");
  number("--ports", options.ports, 1, 64, "Network ports of a host, each rank uses the nearest (1)");
  text("--link", options.link, "Rate and latency of a port (100Gb/s,0.5us)");
  text("--numa-link", options.numa_link, "Rate and latency between two NUMA nodes (20GB/s,0.1us)");
  text("--fat-tree", options.fat_tree, "Leaf switches: HOSTS or HOSTS:OVERSUBSCRIPTION of each");
  text("--dragonfly", options.dragonfly, "Groups with a link between each pair: COUNT or COUNT:OVERSUBSCRIPTION");
  text("--sites", options.sites, "Distant sites in a ring: COUNT or COUNT,RATE,LATENCY of each stretch (10Gb/s,5ms)");
  text("--transport", options.transport, "Transport between hosts (tcp)")->check(CLI::IsMember({"tcp", "verbs"}));
  number("--cores", options.cores, 1, 1 << 16, "Processors of a host, shared by its ranks (one for each rank)");
  command.add_option("--slow", options.slow, "rank=17:0.5 or link=PATH:0.1: reduce the speed to this fraction")
      ->group("Machines");
}

Result<Machines> make_machines(const ClusterOptions& options) {
  auto graph = make_graph(options);
  if (!graph.is_ok()) return graph.status();
  return make_machines(options, std::move(*graph));
}

Result<Machines> make_machines(const ClusterOptions& options, topology::Graph graph) {
  Machines machines;
  machines.graph = std::move(graph);
  machines.by_verbs = options.transport.value_or("tcp") == "verbs";
  if (Status s = machines.graph.check(); !s.is_ok()) return s;
  const int known = least_processors(machines.graph);
  if (options.cores && known > 0 && *options.cores != known) {
    return Status::invalid_argument(
        fmt::format("--cores: no effect: how many processors the machines have is known, {} each", known));
  }
  machines.sharing.cores = options.cores.value_or(known);
  machines.costs = default_costs(world_of(machines), machines.by_verbs, machines.sharing).machine;
  for (const std::string& one : options.slow) {
    if (Status s = read_slow(one, machines); !s.is_ok()) return s;
  }
  return machines;
}

double ranks_per_cpu(const Machines& machines) {
  return ranks_per_cpu_of(world_of(machines), machines.sharing);
}

selection::JobCosts default_costs(const algorithms::World& world, bool by_verbs, topology::Sharing sharing) {
  selection::JobCosts costs = selection::default_costs(world, transport::shm::costs(),
                                                       by_verbs ? transport::verbs::costs() : transport::tcp::costs(),
                                                       ranks_per_cpu_of(world, sharing), sharing.one_machine);
  costs.machine.between_devices = kBetweenDevices;
  costs.machine.device = kDevice;
  return costs;
}

algorithms::World world_of(const Machines& machines) {
  return selection::world_of(machines.graph);
}

namespace {

selection::JobCosts costs_of(const Machines& machines, const selection::TunedJob* fitted) {
  selection::JobCosts costs = default_costs(world_of(machines), machines.by_verbs, machines.sharing);
  selection::use_fitted(fitted, costs);
  return costs;
}

}  // namespace

Result<std::unique_ptr<const JobTuning>> apply_tuning(const std::string& file, Machines& machines) {
  auto found = std::make_unique<JobTuning>();
  if (!file.empty()) {
    auto read = selection::read_tuning(file);
    if (!read.is_ok()) return read.status().with_context("TUTTI_TUNING");
    found->tuning = std::move(*read);
    const selection::JobKind kind =
        selection::kind_of(world_of(machines), "shm", machines.by_verbs ? "verbs" : "tcp", ranks_per_cpu(machines));
    found->tuned = found->tuning.find(kind);
    found->fitted = found->tuning.nearest_costs(kind);
    found->about = found->fitted == nullptr
                       ? fmt::format("with the costs that transports publish: the file of TUTTI_TUNING has none for {}",
                                     text_of(kind))
                       : fmt::format("with the costs of {}: TUTTI_TUNING", text_of(found->fitted->kind));
    machines.costs = costs_of(machines, found->fitted).machine;
  }
  return std::unique_ptr<const JobTuning>(std::move(found));
}

std::shared_ptr<const selection::JobModel> model_of(const Machines& machines, const selection::TunedJob* fitted) {
  return selection::JobModel::of(machines.graph, costs_of(machines, fitted));
}

}  // namespace tutti::internal::tools
