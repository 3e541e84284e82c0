#include "algorithms/prove.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "algorithms/loaded.h"

namespace tutti::internal::algorithms {
namespace {

// Hosts of the given sizes, ranks in order. REQUIRES: sizes are positive.
Hosts in_order(const std::vector<int>& sizes) {
  Hosts::Lists hosts;
  int next = 0;
  for (const int size : sizes) {
    hosts.emplace_back();
    for (int i = 0; i < size; ++i) hosts.back().push_back(next++);
  }
  return hosts;
}

// Rank r on host r modulo count.
Hosts dealt_round(int ranks, int count) {
  Hosts::Lists hosts(static_cast<std::size_t>(count));
  for (int r = 0; r < ranks; ++r) hosts[static_cast<std::size_t>(r % count)].push_back(r);
  return hosts;
}

Hosts drawn(int ranks, unsigned seed) {
  std::mt19937 random(seed);
  const int count = 2 + static_cast<int>(random() % static_cast<unsigned>(std::max(1, ranks / 2)));
  Hosts::Lists hosts(static_cast<std::size_t>(count));
  for (int r = 0; r < ranks; ++r) hosts[random() % hosts.size()].push_back(r);
  std::erase_if(hosts, [](const auto& h) { return h.empty(); });
  return hosts;
}

// Each group in equal parts. REQUIRES: the groups are equal, and their size is a multiple of parts.
Hosts in_parts(const Hosts& groups, std::size_t parts) {
  Hosts::Lists lists;
  for (const auto& group : groups) {
    const std::size_t size = group.size() / parts;
    for (auto at = group.begin(); at != group.end(); at += static_cast<std::ptrdiff_t>(size)) {
      lists.emplace_back(at, at + static_cast<std::ptrdiff_t>(size));
    }
  }
  return lists;
}

// Each group of several ranks in two random parts.
Hosts parted(const Hosts& groups, unsigned seed) {
  std::mt19937 random(seed);
  Hosts::Lists lists;
  for (const auto& group : groups) {
    std::vector<int> parts[2];
    for (const int rank : group) parts[random() % 2].push_back(rank);
    for (auto& part : parts) {
      if (!part.empty()) lists.push_back(std::move(part));
    }
  }
  return lists;
}

std::string describe(const AlgorithmEntry& entry, const World& world, int root) {
  std::string text = fmt::format("{} {}, {} ranks", name_of(entry.collective), entry.name, world.ranks);
  if (has_root(entry.collective)) text += fmt::format(", root {}", root);
  const auto add = [&](const char* separator, const Hosts& groups) {
    for (const auto& group : groups) {
      text += separator;
      text += std::to_string(group.size());
      separator = ",";
    }
  };
  add(", hosts ", world.hosts);
  for (const Hosts& division : world.hierarchy.divisions()) {
    if (!(division == world.hosts)) add(", groups ", division);
  }
  if (world.hosts.are_in_order()) return text;
  text += ", of the ranks";
  constexpr std::size_t kHostsToName = 8;
  constexpr std::size_t kRanksToName = 8;
  for (std::size_t h = 0; h < std::min(world.hosts.size(), kHostsToName); ++h) {
    const std::vector<int>& host = world.hosts[h];
    for (std::size_t i = 0; i < std::min(host.size(), kRanksToName); ++i) {
      text += fmt::format("{}{}", i == 0 ? (h == 0 ? " " : ", ") : " ", host[i]);
    }
    if (host.size() > kRanksToName) text += " ...";
  }
  if (world.hosts.size() > kHostsToName) text += ", ...";
  return text;
}

bool serves_one_host(const AlgorithmEntry& entry) {
  return entry.supports(World{kProvenRanks, {}});
}

// If so, a proof on some hosts does not apply to others.
bool depends_on_hosts(const AlgorithmEntry& entry) {
  return entry.write != nullptr ? program_of(entry)->uses_hosts() : !serves_one_host(entry);
}

// Hosts multiply the number of worlds, and direct and ring algorithms the number of steps: their samples are smaller.
int most_ranks_to_prove(const AlgorithmEntry& entry) {
  if (depends_on_hosts(entry)) return 257;
  // Moving some chunk of every rank's block to every rank takes at least ranks^2 steps in total.
  const Result<schedule::Schedule> first = make_schedule(entry, World{kProvenRanks, {}}, 0, 0);
  const bool quadratic = !first.is_ok() || first.value().steps.size() >= kProvenRanks - 4;
  return quadratic ? 513 : 1024;
}

}  // namespace

Result<schedule::Proof> prove(const AlgorithmEntry& entry, const World& world, int root,
                              const schedule::Interrupt& interrupt) {
  std::vector<schedule::Schedule> schedules;
  schedules.reserve(static_cast<std::size_t>(world.ranks));
  for (int r = 0; r < world.ranks; ++r) {
    Result<schedule::Schedule> schedule = make_schedule(entry, world, r, root);
    if (!schedule.is_ok()) return schedule.status().with_context(describe(entry, world, root));
    schedules.push_back(std::move(schedule).value());
    if (!interrupt) continue;
    if (Status s = interrupt(); !s.is_ok()) return s;
  }
  Result<schedule::Proof> proof = schedule::verify(schedules, order_of(entry, world), interrupt);
  if (!proof.is_ok()) return proof.status().with_context(describe(entry, world, root));
  return proof;
}

ProofCost cost_to_prove(const AlgorithmEntry& entry, const World& world, int root) {
  // Measured with 65 to 2000 ranks: rings, trees, hierarchical and direct algorithms. The pairs are tables of lanes.
  constexpr double kNsPerChunk = 250;
  constexpr double kNsPerPair = 40;
  constexpr double kBytesPerStep = 56;
  constexpr double kBytesPerDependency = 22;
  constexpr double kBytesPerPair = 44;
  constexpr double kBytesPerScratchChunk = 8;
  constexpr int kSamples = 16;
  double steps = 0;
  double chunks = 0;
  double dependencies = 0;
  double scratch = 0;
  const int samples = std::min(world.ranks, kSamples);
  for (int i = 0; i < samples; ++i) {
    const auto rank = static_cast<int>(std::int64_t{world.ranks} * i / samples);
    const Result<schedule::Schedule> schedule = make_schedule(entry, world, rank, root);
    if (!schedule.is_ok()) continue;  // prove() tells
    steps += static_cast<double>(schedule.value().steps.size());
    dependencies += static_cast<double>(schedule.value().dependencies.size());
    scratch += schedule.value().scratch_chunks;
    for (const schedule::Step& s : schedule.value().steps) chunks += s.chunks;
  }
  const double ranks = world.ranks;
  const double pairs = ranks * ranks;
  const double share = ranks / samples;
  ProofCost cost;
  cost.ms = (share * chunks * kNsPerChunk + pairs * kNsPerPair) / 1e6;
  cost.mib = (share * (steps * kBytesPerStep + dependencies * kBytesPerDependency + scratch * kBytesPerScratchChunk) +
              pairs * kBytesPerPair) /
             (1 << 20);
  return cost;
}

std::vector<World> worlds_to_prove(const AlgorithmEntry& entry, int ranks) {
  std::vector<World> worlds;
  const World flat{ranks, {}};
  if (entry.supports(flat)) worlds.push_back(flat);
  if (!depends_on_hosts(entry)) return worlds;
  const auto add = [&](Hosts hosts, std::vector<Hosts> divisions = {}) {
    if (hosts.size() < 2) return;                              // as none
    if (entry.write != nullptr && !divisions.empty()) return;  // a program uses only hosts
    World world{ranks, std::move(hosts), Hierarchy(std::move(divisions))};
    if (entry.supports(world)) worlds.push_back(std::move(world));
  };
  for (int size = 1; size <= ranks / 2; ++size) {
    if (ranks % size != 0) continue;
    const Hosts equal = in_order(std::vector<int>(static_cast<std::size_t>(ranks / size), size));
    const Hosts dealt = dealt_round(ranks, ranks / size);
    add(equal);
    if (size > 1) add(dealt);
    for (int parts = 2; parts <= 3; ++parts) {
      if (size % parts != 0 || size == parts) continue;
      const auto n = static_cast<std::size_t>(parts);
      add(equal, {equal, in_parts(equal, n)});
      add(dealt, {dealt, in_parts(dealt, n)});
      if (size % (2 * parts) != 0 || size == 2 * parts) continue;
      add(equal, {equal, in_parts(equal, n), in_parts(equal, 2 * n)});
      add(dealt, {dealt, in_parts(dealt, n), in_parts(dealt, 2 * n)});
    }
  }
  if (ranks >= 3) add(in_order({1, ranks - 1}));
  if (ranks >= 5) add(in_order({ranks - 3, 1, 2}));
  if (ranks >= 5) add(dealt_round(ranks, (ranks + 1) / 2));
  add(drawn(ranks, static_cast<unsigned>(ranks)));
  add(drawn(ranks, static_cast<unsigned>(ranks) + 1000));
  for (const unsigned seed : {2000U, 3000U}) {
    const Hosts hosts = drawn(ranks, static_cast<unsigned>(ranks) + seed);
    const Hosts parts = parted(hosts, seed);
    add(hosts, {hosts, parts});
    add(hosts, {hosts, parts, parted(parts, seed + 1)});
  }
  return worlds;
}

std::vector<int> roots_to_prove(const AlgorithmEntry& entry, const World& world) {
  if (!has_root(entry.collective)) return {0};
  if (world.ranks > kProvenRanks) return {0, world.ranks / 2 + 1, world.ranks - 1};
  std::vector<int> roots;
  for (int r = 0; r < world.ranks; ++r) roots.push_back(r);
  return roots;
}

std::vector<int> ranks_to_prove(const AlgorithmEntry& entry) {
  std::vector<int> ranks;
  for (int n = 1; n <= kProvenRanks; ++n) ranks.push_back(n);
  const int most = most_ranks_to_prove(entry);
  for (const int n : {65, 67, 97, 127, 128, 129, 191, 192, 255, 256, 257, 383, 509, 511, 512, 513, 1021, 1023, 1024}) {
    if (n <= most) ranks.push_back(n);
  }
  // The costliest shape at the largest number, once.
  const bool costliest = entry.collective == Collective::kAllReduce && std::string_view(entry.name) == "ring";
  if (costliest && most < 1024) ranks.push_back(1024);
  return ranks;
}

bool proven_by_tests(const AlgorithmEntry& entry, const World& world, int root) {
  const auto contains = [](const auto& all, const auto& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  if (!is_listed(entry) || !contains(ranks_to_prove(entry), world.ranks)) return false;
  if (!contains(roots_to_prove(entry, world), has_root(entry.collective) ? root : 0)) return false;
  if (!depends_on_hosts(entry)) return true;
  const std::vector<World> worlds = worlds_to_prove(entry, world.ranks);
  const Hierarchy groups = world.groups();
  const bool by_groups_alone = entry.supports(World{world.ranks, {}, groups});
  return std::any_of(worlds.begin(), worlds.end(), [&](const World& w) {
    return w.groups() == groups && (by_groups_alone || w.hosts == world.hosts);
  });
}

}  // namespace tutti::internal::algorithms
