// tutti verify: proves the catalog's algorithms on this machine and says what was proven.
#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/loaded.h"
#include "algorithms/prove.h"
#include "command.h"
#include "names.h"
#include "os/clock.h"
#include "perf/harness/progress_line.h"

namespace tutti::internal::tools {
namespace {

using algorithms::AlgorithmEntry;
using algorithms::World;

struct Options {
  int max_ranks = algorithms::kProvenRanks;
  std::string hosts;
  std::string algorithm;
  std::string collective;
  std::vector<std::string> files;
};

constexpr int kMostRanks = 1024;

struct Total {
  std::size_t proofs = 0;
  schedule::Proof work;
  double ms = 0;
};

Status prove_world(const AlgorithmEntry& entry, const World& world, Total& total) {
  for (const int root : algorithms::roots_to_prove(entry, world)) {
    const Result<schedule::Proof> proof = algorithms::prove(entry, world, root);
    if (!proof.is_ok()) return proof.status();
    ++total.proofs;
    total.work.steps += proof.value().steps;
    total.work.transfers += proof.value().transfers;
    total.work.accesses += proof.value().accesses;
  }
  return {};
}

Status prove_up_to(const AlgorithmEntry& entry, int max_ranks, bool must_serve, Total& total,
                   perf::ProgressLine& progress) {
  for (int ranks = 1; ranks <= max_ranks; ++ranks) {
    if (progress.shows()) {
      progress.show(fmt::format("proving {} {}, {} ranks", name_of(entry.collective), entry.name, ranks));
    }
    for (const World& world : algorithms::worlds_to_prove(entry, ranks)) {
      if (Status s = prove_world(entry, world, total); !s.is_ok()) return s;
    }
  }
  if (total.proofs > 0 || !must_serve) return {};
  return Status::invalid_argument(fmt::format(
      "it supports no number of ranks up to {} on the hosts that are tried (see --max-ranks, --hosts)", max_ranks));
}

// Proves the entry for `only`. If that is null, for many worlds; `must_serve`: the entry must support one of them.
Status prove_all(const AlgorithmEntry& entry, const World* only, int max_ranks, bool must_serve, Total& total) {
  const std::int64_t start = now_ns();
  perf::ProgressLine progress;
  Status status =
      only != nullptr ? prove_world(entry, *only, total) : prove_up_to(entry, max_ranks, must_serve, total, progress);
  total.ms = static_cast<double>(now_ns() - start) / 1e6;
  return status;
}

void print_total(const char* collective, const char* name, const Total& t) {
  std::printf("%-14s %-22s %8zu %12zu %12zu %12zu %10.1f\n", collective, name, t.proofs, t.work.steps, t.work.transfers,
              t.work.accesses, t.ms);
  std::fflush(stdout);
}

Result<std::vector<const AlgorithmEntry*>> choose(const Options& options) {
  Result<Collective> collective = Collective::kAllReduce;
  if (!options.collective.empty()) collective = parse_collective(options.collective);
  if (!collective.is_ok()) return collective.status();
  const auto wanted = [&](Collective c) { return options.collective.empty() || c == collective.value(); };
  std::vector<const AlgorithmEntry*> entries;
  for (const std::string& file : options.files) {
    auto program = algorithms::Program::read(file);
    if (!program.is_ok()) return program.status();
    entries.push_back(algorithms::keep(std::move(*program)));
    if (entries.back() == nullptr)
      return Status::invalid_argument(file + ": name: is already the name of another algorithm");
  }
  if (!entries.empty()) return entries;
  if (options.algorithm.empty()) {
    for (const AlgorithmEntry& entry : algorithms::catalog()) {
      if (wanted(entry.collective)) entries.push_back(&entry);
    }
    return entries;
  }
  for (const CollectiveInfo& info : kCollectiveTable) {
    const AlgorithmEntry* entry = algorithms::find(info.collective, options.algorithm);
    if (entry != nullptr && wanted(info.collective)) entries.push_back(entry);
  }
  if (!entries.empty()) return entries;
  return no_algorithm(options.algorithm, options.collective.empty() ? std::nullopt : std::optional(collective.value()));
}

void print_claim(const Options& options, int most_ranks) {
  const char* const roots = most_ranks > algorithms::kProvenRanks ? " (beyond 64 ranks: three)" : "";
  if (options.hosts.empty()) {
    std::printf(
        "Every number of ranks from 1 to %d, every root%s; algorithms that know hosts on many divisions of the\n"
        "ranks. ",
        most_ranks, roots);
  } else {
    std::printf("Hosts of %s ranks, in their order, every root%s.\n", options.hosts.c_str(), roots);
  }
  std::printf(
      "Each proof: results, equal combination trees, no races (also in place), matching messages, no\n"
      "deadlock without buffering, nor in program order with one message per lane.\n\n");
}

int run_verify(const Options& options) {
  const Result<std::vector<const AlgorithmEntry*>> chosen = choose(options);
  if (!chosen.is_ok()) {
    std::fprintf(stderr, "tutti verify: %s\n", chosen.status().message().c_str());
    return kExitUsage;
  }
  std::optional<World> only;
  if (!options.hosts.empty()) {
    auto world = parse_world(options.hosts, kMostRanks);
    if (!world.is_ok()) {
      std::fprintf(stderr, "tutti verify: %s\n", world.status().message().c_str());
      return kExitUsage;
    }
    only = std::move(*world);
  }
  print_claim(options, only ? only->ranks : options.max_ranks);
  std::printf("%-14s %-22s %8s %12s %12s %12s %10s\n", "collective", "algorithm", "proofs", "steps", "transfers",
              "accesses", "time (ms)");
  Total all;
  int failures = 0;
  for (const AlgorithmEntry* entry : chosen.value()) {
    // Of the library's some serve any division.
    if (only && options.files.empty() && !entry->supports(*only)) continue;
    Total total;
    // Of all algorithms some need more ranks.
    const bool asked_for = !options.algorithm.empty() || !options.files.empty();
    const Status status = prove_all(*entry, only ? &*only : nullptr, options.max_ranks, asked_for, total);
    if (!status.is_ok()) {
      std::printf("%-14s %-22s FAILED: %s\n", name_of(entry->collective), entry->name, status.message().c_str());
      ++failures;
      continue;
    }
    print_total(name_of(entry->collective), entry->name, total);
    all.proofs += total.proofs;
    all.work.steps += total.work.steps;
    all.work.transfers += total.work.transfers;
    all.work.accesses += total.work.accesses;
    all.ms += total.ms;
  }
  print_total("total", "", all);
  if (all.proofs == 0 && failures == 0) {
    std::printf("FAILED: no algorithm that is asked for serves these hosts\n");
    ++failures;
  }
  if (failures > 0) std::printf("%d FAILED\n", failures);
  return failures > 0 ? kExitFailure : kExitOk;
}

}  // namespace

Run add_verify(CLI::App& app, CLI::App** chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("verify", "Prove the algorithms correct and free of deadlock");
  command
      ->add_option("-n,--max-ranks", options->max_ranks,
                   "Prove every number of ranks up to this one; beyond 64 with three roots only, and slowly")
      ->check(CLI::Range(1, kMostRanks))
      ->capture_default_str();
  command
      ->add_option("--hosts", options->hosts,
                   "Prove only this division: ranks of each host, such as 8,8,4, in the order of ranks")
      ->excludes(command->get_option("--max-ranks"));
  command->add_option("--algorithm", options->algorithm, "Only this algorithm (ring, k_nomial:4, ...)")
      ->type_name("ALGORITHM");
  command->add_option("--collective", options->collective, "Only this collective: " + all_collectives())
      ->type_name("COLLECTIVE");
  CLI::Option* const files =
      command
          ->add_option("files", options->files,
                       "Files of schedules to prove, in place of the library's own (docs/schedules.md)")
          ->type_name("FILE");
  for (const char* other : {"--algorithm", "--collective"}) files->excludes(command->get_option(other));
  command->footer("Exit status: 0 all algorithms proven, 1 a proof failed, 2 invalid arguments.");
  *chosen = command;
  return [options] { return run_verify(*options); };
}

}  // namespace tutti::internal::tools
