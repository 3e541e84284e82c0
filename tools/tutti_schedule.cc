// tutti schedule: prints one rank's steps.
#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <string>

#include "algorithms/catalog.h"
#include "command.h"
#include "names.h"

namespace tutti::internal::tools {
namespace {

struct Options {
  std::string algorithm;
  std::string collective = "all_reduce";
  std::string hosts;
  int ranks = 4;
  int rank = 0;
  int root = 0;
};

Status print_schedule(const Options& options) {
  const Result<Collective> collective = parse_collective(options.collective);
  if (!collective.is_ok()) return collective.status();
  const algorithms::AlgorithmEntry* entry = algorithms::find(collective.value(), options.algorithm);
  if (entry == nullptr) return no_algorithm(options.algorithm, collective.value());
  Result<algorithms::Hosts> hosts = parse_hosts(options.hosts, options.ranks);
  if (!hosts.is_ok()) return hosts.status();
  const algorithms::World world{options.ranks, std::move(hosts).value()};
  const Result<schedule::Schedule> schedule = make_schedule(*entry, world, options.rank, options.root);
  if (!schedule.is_ok()) return schedule.status();
  std::printf("%s; time %s\n%s", entry->name, entry->formula, to_text(schedule.value()).c_str());
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
  command->add_option("algorithm", options->algorithm, "Name of the algorithm (ring, k_nomial:4, ...)")->required();
  command->add_option("-n,--ranks", options->ranks, "Number of ranks")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("-r,--rank", options->rank, "The rank whose steps are printed")->capture_default_str();
  command->add_option("--collective", options->collective, "One of " + all_collectives())->capture_default_str();
  command->add_option("--root", options->root, "Root, where the collective has one")->capture_default_str();
  command->add_option("--hosts", options->hosts, "Ranks per host, such as 4,4 (default: one host)");
  std::string footer = "Algorithms:\n";
  for (int c = 0; c < kCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    footer += fmt::format("  {}: {}\n", name_of(collective), known_algorithms(collective));
  }
  footer +=
      "The hierarchical ones need --hosts. Times: a for a message, o for each further one that is sent meanwhile,\n"
      "b for a byte, g for combining a byte, f the same where it is sent on at once; B bytes, n ranks, p the largest\n"
      "power of two up to n.\n"
      "k_nomial:K is a tree of radix K, chain:K a chain of K pieces.\n"
      "Exit status: 0 success, 1 a failure, 2 invalid arguments.";
  command->footer(footer);
  *chosen = command;
  return [options] { return run_schedule(*options); };
}

}  // namespace tutti::internal::tools
