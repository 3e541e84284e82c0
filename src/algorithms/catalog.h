// All algorithms, by collective and name: the one place that proof, simulation, selection, tests and the
// command line read. A new algorithm is one pure file and one line in catalog.cc.
#pragma once

#include <span>
#include <string_view>

#include "algorithms/hierarchical.h"
#include "base/link_costs.h"
#include "base/status.h"
#include "base/types.h"
#include "schedule/builder.h"
#include "schedule/schedule.h"

namespace tutti::internal::algorithms {

// The ranks that take part, and their hosts. hosts holds every rank exactly once; empty means that all are on one host.
struct World {
  int ranks = 1;
  Hosts hosts;
};

// What the cost model reads.
struct Costs {
  LinkCosts within_host;
  LinkCosts between_hosts;
  double gamma_us_per_byte = 0;  // combining two values
  // The same of values that are sent on in the same pass.
  double forward_gamma_us_per_byte = 0;
};

struct AlgorithmEntry {
  const char* name;
  Collective collective;
  bool (*supports)(const World&);
  // How the vector is cut. root matters where the collective has one. REQUIRES: supports(world).
  schedule::Shape (*shape)(const World&, int root);
  // Writes the steps of builder.rank(). REQUIRES: the builder has that shape.
  void (*generate)(Builder&, const World&);
  // Predicted time in microseconds for a vector of `bytes` (all blocks together). REQUIRES: supports(world).
  double (*cost_us)(const World&, double bytes, const Costs&);
  // Of cost_us on one host, n > 1: B bytes, n ranks, p the largest power of two <= n; a = alpha, b = beta,
  // g = gamma, f = forward_gamma, o = message.
  const char* formula;
  // Whether it combines in the order of ranks, whatever the root, so that the operator need not commute. Null: nowhere.
  // It may do so elsewhere too (two ranks are always in order).
  bool (*keeps_order)(const World&) = nullptr;
};

inline schedule::Order order_of(const AlgorithmEntry& entry, const World& world) {
  const bool keeps = entry.keeps_order != nullptr && entry.keeps_order(world);
  return keeps ? schedule::Order::kRanks : schedule::Order::kAny;
}

// Static; entries of one collective stand together. Any thread.
std::span<const AlgorithmEntry> catalog();
// nullptr if there is none.
const AlgorithmEntry* find(Collective collective, std::string_view name);

// The schedule of `rank`. kInvalidArgument if the world is malformed, the algorithm does not serve it, or
// rank or root is outside it; kInternalError if the generator is defective.
Result<schedule::Schedule> make_schedule(const AlgorithmEntry& entry, const World& world, int rank, int root);

}  // namespace tutti::internal::algorithms
