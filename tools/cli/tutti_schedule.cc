// tutti schedule: prints one rank's steps, or writes or draws those of all.
#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/catalog.h"
#include "algorithms/program.h"
#include "command.h"
#include "names.h"
#include "tools/drawing/picture.h"

namespace tutti::internal::tools {
namespace {

struct Options {
  std::string algorithm;
  std::optional<std::string> collective;  // none: not given; that of a file, else an all-reduce
  std::string hosts;
  std::optional<int> ranks;  // none: as many as the hosts have together, or 4
  int rank = 0;
  int root = 0;
  bool as_json = false;
  std::string svg;
};

constexpr int kMostRanks = 65536;
constexpr int kMostRanksToWrite = 4096;
constexpr int kMostRanksToDraw = 64;

Result<std::vector<schedule::Schedule>> schedules_of(const algorithms::AlgorithmEntry& entry,
                                                     const algorithms::World& world, int root) {
  std::vector<schedule::Schedule> schedules;
  for (int rank = 0; rank < world.ranks; ++rank) {
    auto one = make_schedule(entry, world, rank, root);
    if (!one.is_ok()) return one.status();
    schedules.push_back(std::move(*one));
  }
  return schedules;
}

std::string word_of(const std::string& name) {
  std::string word = "written_" + name;
  for (char& c : word) c = c == ':' ? '_' : c;
  return word;
}

Status write_all(const Options& options, const algorithms::AlgorithmEntry& entry, const algorithms::World& world) {
  const int most = options.svg.empty() ? kMostRanksToWrite : kMostRanksToDraw;
  if (world.ranks > most) {
    return Status::invalid_argument(
        fmt::format("{}: {} ranks are more than {}", options.svg.empty() ? "--json" : "--svg", world.ranks, most));
  }
  if (options.as_json && info_of(entry.collective).varies) {
    return Status::invalid_argument("--json: blocks of different counts are served by the library's own alone");
  }
  auto schedules = schedules_of(entry, world, options.root);
  if (!schedules.is_ok()) return schedules.status();
  if (options.as_json) {
    if (has_root(entry.collective)) {
      return Status::invalid_argument("--json: steps support only one root, and a file must support every root");
    }
    std::printf("%s", algorithms::to_json(*schedules, word_of(entry.name), order_of(entry, world)).c_str());
    return {};
  }
  auto drawing =
      draw_schedules(*schedules, fmt::format("{} {}, {} ranks", name_of(entry.collective), entry.name, world.ranks));
  if (!drawing.is_ok()) return drawing.status();
  return write_text(options.svg, *drawing);
}

Result<algorithms::World> world_of(const Options& options) {
  if (!options.ranks && !options.hosts.empty()) return parse_world(options.hosts, kMostRanks);
  const int ranks = options.ranks.value_or(4);
  Result<algorithms::Hosts> hosts = parse_hosts(options.hosts, ranks);
  if (!hosts.is_ok()) return hosts.status();
  return algorithms::World{ranks, std::move(hosts).value()};
}

Status print_schedule(const Options& options) {
  auto found = entry_of(options.algorithm, options.collective.value_or("all_reduce"));
  if (!found.is_ok()) return found.status();
  const algorithms::AlgorithmEntry* const entry = *found;
  if (options.collective) {
    const Result<Collective> collective = parse_collective(*options.collective);
    if (!collective.is_ok()) return collective.status();
    if (collective.value() != entry->collective) {
      return Status::invalid_argument(fmt::format("--collective {}: no effect beside {}, which is of {}",
                                                  *options.collective, options.algorithm, name_of(entry->collective)));
    }
  }
  const Result<algorithms::World> parsed = world_of(options);
  if (!parsed.is_ok()) return parsed.status();
  const algorithms::World& world = parsed.value();
  if (options.as_json || !options.svg.empty()) return write_all(options, *entry, world);
  const Result<schedule::Schedule> schedule = make_schedule(*entry, world, options.rank, options.root);
  if (!schedule.is_ok()) return schedule.status();
  std::printf("%s\n%s", entry->name, to_text(schedule.value()).c_str());
  return Status::ok();
}

int run_schedule(const Options& options) {
  const Status status = print_schedule(options);
  if (status.is_ok()) return kExitOk;
  std::fprintf(stderr, "tutti schedule: %s\n", status.message().c_str());
  return status.code() == Code::kInvalidArgument ? kExitUsage : kExitFailure;
}

}  // namespace

Run add_schedule(CLI::App& app, CLI::App** chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("schedule", "Print the steps of one rank");
  command
      ->add_option("algorithm", options->algorithm, "Name of the algorithm (ring, k_nomial:4, ...), or a file of one")
      ->type_name("ALGORITHM|FILE")
      ->required();
  command->add_option("-n,--ranks", options->ranks, "Number of ranks (that of --hosts, or 4)")
      ->check(CLI::Range(1, kMostRanks));
  command->add_option("-r,--rank", options->rank, "The rank whose steps are printed")->capture_default_str();
  command
      ->add_option("--collective", options->collective,
                   "One of " + all_collectives() + " (that of the file, or all_reduce)")
      ->type_name("COLLECTIVE");
  command->add_option("--root", options->root, "Root, for collectives with a root")->capture_default_str();
  command->add_option("--hosts", options->hosts, "Ranks of each host: 4,4 are two hosts of 4 (default: one host)");
  command->add_flag("--json", options->as_json, "The steps of all ranks, as a file for TUTTI_SCHEDULES");
  command->add_option("--svg", options->svg, "Draw the steps over time into this file; - is standard output")
      ->type_name("FILE");
  std::string footer = "Algorithms:\n";
  for (int c = 0; c < kCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    footer += fmt::format("  {}: {}\n", name_of(collective), known_algorithms(collective));
  }
  footer +=
      "Hierarchical algorithms and rings of several channels need --hosts.\n"
      "k_nomial:K is a tree of radix K, chain:K a chain of K pieces, ring:K a ring of K channels.\n"
      "Exit status: 0 success, 1 a failure, 2 invalid arguments.";
  command->footer(footer);
  *chosen = command;
  return [options] { return run_schedule(*options); };
}

}  // namespace tutti::internal::tools
