#include "topology/select.h"

#include <algorithm>
#include <sstream>

namespace tutti::internal::topology {
namespace {

using algorithms::AlgorithmEntry;
using algorithms::LinkCosts;

std::string names_of(Collective collective) {
  std::string names;
  for (const AlgorithmEntry& e : algorithms::catalog()) {
    if (e.collective == collective) names += std::string(names.empty() ? "" : ", ") + e.name;
  }
  return names;
}

bool any_has(const std::string& name) {
  const auto all = algorithms::catalog();
  return std::any_of(all.begin(), all.end(), [&](const AlgorithmEntry& e) { return name == e.name; });
}

bool any_serves(const std::string& collective) {
  const auto all = algorithms::catalog();
  return std::any_of(all.begin(), all.end(),
                     [&](const AlgorithmEntry& e) { return collective == name_of(e.collective); });
}

Status unusable(const std::string& forced, const std::string& why) {
  return Status::invalid_usage("TUTTI_ALGORITHM=\"" + forced + "\" (or the configuration's algorithm): " + why);
}

// The forced entry, null if none is forced for this collective.
Result<const AlgorithmEntry*> forced_entry(Collective collective, const algorithms::World& world,
                                           const std::string& forced) {
  std::istringstream words(forced);
  for (std::string word; std::getline(words, word, ',');) {
    const auto colon = word.find(':');
    const std::string name = colon == std::string::npos ? word : word.substr(colon + 1);
    if (!any_has(name)) return unusable(forced, "algorithm \"" + name + "\" does not exist");
    if (colon != std::string::npos && !any_serves(word.substr(0, colon))) {
      return unusable(forced, "collective \"" + word.substr(0, colon) + "\" does not exist");
    }
    if (colon != std::string::npos && word.substr(0, colon) != name_of(collective)) continue;
    const AlgorithmEntry* entry = algorithms::find(collective, name);
    if (entry != nullptr && entry->supports(world)) return entry;
    if (colon == std::string::npos) continue;
    return unusable(forced,
                    "algorithm \"" + word + "\" " +
                        (entry == nullptr ? "does not exist; there are " + names_of(collective)
                                          : "does not serve " + std::to_string(world.ranks) + " ranks on these hosts"));
  }
  return static_cast<const AlgorithmEntry*>(nullptr);
}

}  // namespace

LinkCosts link_costs(const Conditions& c) {
  LinkCosts costs;
  // Fitted to all-reduces of 2, 4 and 8 ranks on two processors; only the ratios decide. alpha is that of
  // messages of some KiB, where algorithms part ways; below, fewest rounds win whatever it is. Ranks that
  // share a processor take turns: bytes cost each of them as many times as they are, messages a switch.
  const bool oversubscribed = c.ranks_per_cpu > 1;
  costs.intra_alpha_us = oversubscribed ? 0.6 * c.ranks_per_cpu : 1.25;
  costs.intra_message_us = oversubscribed ? 0.19 * c.ranks_per_cpu : 0.4;
  costs.intra_beta_us_per_byte = 7e-5 * c.ranks_per_cpu;
  costs.gamma_us_per_byte = 4e-5 * c.ranks_per_cpu;
  // Before a rank has its turn again, others have driven the bytes that it is to combine and send on out of the
  // caches. Eight ranks on two processors, 256 KiB to 4 MiB: a ring takes 1.2 to 1.4 times as long as going directly.
  costs.forward_gamma_us_per_byte = oversubscribed ? costs.gamma_us_per_byte : 0;
  costs.inter_alpha_us = 20.0;
  costs.inter_beta_us_per_byte = 4.5e-4;
  costs.inter_message_us = oversubscribed ? 12.0 : 4.0;
  if (c.rdma) {
    // A switched 100 Gbit/s network, where the device moves the bytes.
    costs.inter_alpha_us = 3.0;
    costs.inter_beta_us_per_byte = 8e-5;
    costs.inter_message_us = 0.5;
  }
  return costs;
}

Result<const AlgorithmEntry*> select(Collective collective, const algorithms::World& world, std::size_t bytes,
                                     const Conditions& conditions, const std::string& forced) {
  const Collective of = collective == Collective::kBarrier ? Collective::kAllReduce : collective;
  auto chosen = forced_entry(of, world, forced);
  if (!chosen.is_ok() || *chosen != nullptr) return chosen;
  const LinkCosts costs = link_costs(conditions);
  const AlgorithmEntry* best = nullptr;
  double best_us = 0;
  for (const AlgorithmEntry& e : algorithms::catalog()) {
    if (e.collective != of || !e.supports(world)) continue;
    const double us = e.cost_us(world, static_cast<double>(bytes), costs);
    if (best != nullptr && us >= best_us) continue;
    best = &e;
    best_us = us;
  }
  if (best == nullptr) return Status::internal(std::string("no algorithm for ") + name_of(collective));
  return best;
}

}  // namespace tutti::internal::topology
