#include "topology/select.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

namespace tutti::internal::topology {
namespace {

using algorithms::AlgorithmEntry;
using algorithms::Costs;
using schedule::Order;

bool keeps(const AlgorithmEntry& entry, const algorithms::World& world, Order order) {
  return order == Order::kAny || algorithms::order_of(entry, world) == order;
}

// All, or those that combine in the order of these ranks.
std::string names_of(Collective collective, const algorithms::World* ordered = nullptr) {
  std::string names;
  for (const AlgorithmEntry& e : algorithms::catalog()) {
    const bool named = ordered == nullptr || (e.supports(*ordered) && keeps(e, *ordered, Order::kRanks));
    if (e.collective == collective && named) names += std::string(names.empty() ? "" : ", ") + e.name;
  }
  return names;
}

bool any_has(const std::string& name) {
  const auto all = algorithms::catalog();
  return std::any_of(all.begin(), all.end(), [&](const AlgorithmEntry& e) { return name == e.name; });
}

Status unusable(const std::string& forced, const std::string& why) {
  return Status::invalid_usage(
      fmt::format("TUTTI_ALGORITHM=\"{}\" (or the configuration's algorithm): {}", forced, why));
}

// The forced entry, null if none is forced for this collective.
Result<const AlgorithmEntry*> forced_entry(Collective collective, const algorithms::World& world,
                                           const std::string& forced, Order order) {
  if (Status s = check_forced(forced); !s.is_ok()) return s;
  std::istringstream words(forced);
  for (std::string word; std::getline(words, word, ',');) {
    const auto colon = word.find(':');
    const std::string name = colon == std::string::npos ? word : word.substr(colon + 1);
    if (colon != std::string::npos && word.substr(0, colon) != name_of(collective)) continue;
    const AlgorithmEntry* entry = algorithms::find(collective, name);
    const bool serves = entry != nullptr && entry->supports(world);
    if (serves && keeps(*entry, world, order)) return entry;
    if (colon == std::string::npos) continue;
    if (serves) {
      return unusable(forced,
                      fmt::format("algorithm \"{}\" does not combine in the order of ranks, as an operator that "
                                  "does not commute needs; there are {}",
                                  word, names_of(collective, &world)));
    }
    return unusable(forced, fmt::format("algorithm \"{}\" does not serve {} ranks on these hosts", word, world.ranks));
  }
  return static_cast<const AlgorithmEntry*>(nullptr);
}

}  // namespace

// Fitted together with the costs of shared memory (transport/shm/costs.cc).
Costs combine_costs(const LinkCosts& within_host, const LinkCosts& between_hosts, double ranks_per_cpu) {
  Costs costs{within_host, between_hosts, 4e-5 * ranks_per_cpu, 0};
  // Before a rank has its turn again, others have driven the bytes that it is to combine and send on out of the
  // caches. Eight ranks on two processors, 256 KiB to 4 MiB: a ring takes 1.2 to 1.4 times as long as going directly.
  if (ranks_per_cpu > 1) costs.forward_gamma_us_per_byte = costs.gamma_us_per_byte;
  return costs;
}

Status check_forced(const std::string& forced) {
  const auto all = algorithms::catalog();
  std::istringstream words(forced);
  for (std::string word; std::getline(words, word, ',');) {
    const auto colon = word.find(':');
    const std::string name = colon == std::string::npos ? word : word.substr(colon + 1);
    if (!any_has(name)) return unusable(forced, fmt::format("algorithm \"{}\" does not exist", name));
    if (colon == std::string::npos) continue;
    const auto of = std::find_if(all.begin(), all.end(), [&](const AlgorithmEntry& e) {
      return word.substr(0, colon) == name_of(e.collective);
    });
    if (of == all.end()) {
      return unusable(forced, fmt::format("collective \"{}\" does not exist", word.substr(0, colon)));
    }
    if (algorithms::find(of->collective, name) == nullptr) {
      return unusable(forced,
                      fmt::format("algorithm \"{}\" does not exist; there are {}", word, names_of(of->collective)));
    }
  }
  return {};
}

Result<const AlgorithmEntry*> select(Collective collective, const algorithms::World& world, std::size_t bytes,
                                     const Costs& costs, const std::string& forced, Order order) {
  const Collective of = collective == Collective::kBarrier ? Collective::kAllReduce : collective;
  auto chosen = forced_entry(of, world, forced, order);
  if (!chosen.is_ok() || *chosen != nullptr) return chosen;
  const AlgorithmEntry* best = nullptr;
  double best_us = 0;
  for (const AlgorithmEntry& e : algorithms::catalog()) {
    if (e.collective != of || !e.supports(world) || !keeps(e, world, order)) continue;
    const double us = e.cost_us(world, static_cast<double>(bytes), costs);
    if (best != nullptr && us >= best_us) continue;
    best = &e;
    best_us = us;
  }
  if (best == nullptr) return Status::internal(fmt::format("no algorithm for {}", name_of(collective)));
  return best;
}

}  // namespace tutti::internal::topology
