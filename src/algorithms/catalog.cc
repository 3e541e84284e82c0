#include "algorithms/catalog.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "algorithms/binomial.h"
#include "algorithms/bruck.h"
#include "algorithms/chain.h"
#include "algorithms/costs.h"
#include "algorithms/direct.h"
#include "algorithms/double_tree.h"
#include "algorithms/doubling.h"
#include "algorithms/halving.h"
#include "algorithms/ordered.h"
#include "algorithms/prefix.h"
#include "algorithms/ring.h"

namespace tutti::internal::algorithms {
namespace {

using schedule::Shape;
constexpr Completes kYes = Completes::kYes;

Group everyone(const Builder& b) {
  return Group::world(b.shape().ranks, b.rank());
}
ChunkRange all(const Builder& b) {
  return {0, b.shape().chunks};
}
int root(const Builder& b) {
  return b.shape().root;
}

bool always(const World&) {
  return true;
}
bool some_hosts(const World& w) {
  return w.hosts.size() > 1 && largest_host(w.hosts) > 1;
}
bool some_equal_hosts(const World& w) {
  return some_hosts(w) && equal_hosts(w.hosts);
}

// Whether each host has consecutive ranks, and the next host those behind them.
bool hosts_in_order(const World& w) {
  int next = 0;
  for (const auto& host : w.hosts) {
    for (const int rank : host) {
      if (rank != next++) return false;
    }
  }
  return true;
}

// The vector in one piece, in two, in one per rank, and so on.
int one(const World&) {
  return 1;
}
int two(const World&) {
  return 2;
}
int per_rank(const World& w) {
  return w.ranks;
}
int per_folded(const World& w) {
  return power_of_two_below(w.ranks);
}
// Equal hosts: each of a host's members takes a share, which the hosts' ring cuts again.
int per_local_rank_and_host(const World& w) {
  const std::size_t shares = equal_hosts(w.hosts) ? w.hosts.front().size() : 1;
  return static_cast<int>(shares * w.hosts.size());
}

template <Collective collective, int (*chunks)(const World&)>
Shape shape(const World& w, int root_rank) {
  Shape s;
  s.collective = collective;
  s.ranks = w.ranks;
  s.root = has_root(collective) ? root_rank : 0;
  s.chunks = static_cast<std::uint32_t>(chunks(w));
  s.blocks = static_cast<std::uint32_t>(blocks_of(collective, w.ranks));
  return s;
}

std::vector<Part> blocks(const Builder& b) {
  return equal_parts(all(b), b.shape().ranks);
}

constexpr auto kAllReduce = Collective::kAllReduce;
constexpr auto kReduceScatter = Collective::kReduceScatter;
constexpr auto kAllGather = Collective::kAllGather;
constexpr auto kBroadcast = Collective::kBroadcast;
constexpr auto kReduce = Collective::kReduce;
constexpr auto kBarrier = Collective::kBarrier;
constexpr auto kGather = Collective::kGather;
constexpr auto kScatter = Collective::kScatter;
constexpr auto kAllToAll = Collective::kAllToAll;
constexpr auto kScan = Collective::kScan;
constexpr auto kExscan = Collective::kExscan;
constexpr auto kAllGatherV = Collective::kAllGatherV;
constexpr auto kReduceScatterV = Collective::kReduceScatterV;
constexpr auto kAllToAllV = Collective::kAllToAllV;
constexpr auto kGatherV = Collective::kGatherV;
constexpr auto kScatterV = Collective::kScatterV;

// A generator that needs no more than the builder.
template <void (*generate)(Builder&)>
void of_all(Builder& b, const World&) {
  generate(b);
}

void recursive_doubling(Builder& b, const World&) {
  doubling_all_reduce(b, everyone(b), all(b), kYes);
}
void binomial_both(Builder& b, const World&) {
  binomial_all_reduce(b, everyone(b), all(b), kYes);
}
void direct_once(Builder& b, const World&) {
  direct_all_reduce(b, everyone(b), all(b), kYes);
}
void leaders_doubling(Builder& b, const World& w) {
  hierarchical_doubling_all_reduce(b, w.hosts, all(b), kYes);
}

const AlgorithmEntry kCatalog[] = {
    {"direct", kAllReduce, always, shape<kAllReduce, one>, direct_once, costs::direct_all_reduce,
     "a + (n-2) o + (n-1) B (b+g)", always},
    {"direct_two_phase", kAllReduce, always, shape<kAllReduce, per_rank>,
     [](Builder& b, const World&) { direct_two_phase_all_reduce(b, everyone(b), all(b), kYes); },
     costs::direct_two_phase_all_reduce, "2 a + 2 (n-2) o + (n-1)/n B (2b+g)"},
    {"recursive_doubling", kAllReduce, always, shape<kAllReduce, one>, recursive_doubling, costs::doubling_all_reduce,
     "log2(p) (a + B (b+g)) + [n != p] (2 a + B (2b+g))", always},
    {"halving_doubling", kAllReduce, always, shape<kAllReduce, per_folded>,
     [](Builder& b, const World&) { halving_doubling_all_reduce(b, everyone(b), all(b), kYes); },
     costs::halving_doubling_all_reduce, "2 log2(p) a + (p-1)/p B (2b+g) + [n != p] (2 a + B (2b+g))"},
    {"ring", kAllReduce, always, shape<kAllReduce, per_rank>,
     [](Builder& b, const World&) { ring_all_reduce(b, everyone(b), all(b), kYes); }, costs::ring_all_reduce,
     "2 (n-1) a + 2 (n-1)/n B b + B/n (g + (n-2) f)"},
    {"binomial", kAllReduce, always, shape<kAllReduce, one>, binomial_both, costs::binomial_all_reduce,
     "log2(n) (2 a + B (2b+g))", always},
    {"double_tree", kAllReduce, always, shape<kAllReduce, two>,
     [](Builder& b, const World&) { double_tree_all_reduce(b, everyone(b), all(b), kYes); },
     costs::double_tree_all_reduce, "about 4 log2(n) (a + P b) + B (2b+g), P bytes of a piece"},
    {"hierarchical", kAllReduce, some_hosts, shape<kAllReduce, per_local_rank_and_host>,
     [](Builder& b, const World& w) { hierarchical_all_reduce(b, w.hosts, all(b), kYes); },
     costs::hierarchical_all_reduce, "direct reduce-scatter + ring all-reduce between hosts + direct all-gather"},
    {"hierarchical_doubling", kAllReduce, some_hosts, shape<kAllReduce, one>, leaders_doubling,
     costs::hierarchical_doubling_all_reduce, "binomial reduce + recursive doubling + binomial broadcast",
     hosts_in_order},
    {"ordered_two_phase", kAllReduce, always, shape<kAllReduce, per_rank>,
     [](Builder& b, const World&) { ordered_two_phase_all_reduce(b, everyone(b), all(b), kYes); },
     costs::direct_two_phase_all_reduce, "2 a + 2 (n-2) o + (n-1)/n B (2b+g)", always},

    {"direct", kReduceScatter, always, shape<kReduceScatter, per_rank>,
     [](Builder& b, const World&) { direct_reduce_scatter(b, everyone(b), blocks(b), kYes); },
     costs::direct_reduce_scatter, "a + (n-2) o + (n-1)/n B (b+g)"},
    {"recursive_halving", kReduceScatter, always, shape<kReduceScatter, per_rank>,
     [](Builder& b, const World&) { halving_reduce_scatter(b, everyone(b), all(b), kYes); },
     costs::halving_reduce_scatter, "log2(p) a + (p-1)/p B (b+g) + [n != p] (2 a + B (b+g) + B/n b)"},
    {"ring", kReduceScatter, always, shape<kReduceScatter, per_rank>,
     [](Builder& b, const World&) { ring_reduce_scatter(b, everyone(b), blocks(b), kYes); }, costs::ring_reduce_scatter,
     "(n-1) a + (n-1)/n B b + B/n (g + (n-2) f)"},
    {"hierarchical", kReduceScatter, some_equal_hosts, shape<kReduceScatter, per_rank>,
     [](Builder& b, const World& w) { hierarchical_reduce_scatter(b, w.hosts, all(b), kYes); },
     costs::hierarchical_reduce_scatter, "direct inside hosts + ring between hosts"},
    {"ordered_direct", kReduceScatter, always, shape<kReduceScatter, per_rank>,
     [](Builder& b, const World&) { ordered_direct_reduce_scatter(b, everyone(b), blocks(b), kYes); },
     costs::direct_reduce_scatter, "a + (n-2) o + (n-1)/n B (b+g)", always},

    {"direct", kAllGather, always, shape<kAllGather, per_rank>,
     [](Builder& b, const World&) { direct_all_gather(b, everyone(b), blocks(b)); }, costs::direct_all_gather,
     "a + (n-2) o + (n-1)/n B b"},
    {"bruck", kAllGather, always, shape<kAllGather, per_rank>,
     [](Builder& b, const World&) { bruck_all_gather(b, everyone(b), all(b)); }, costs::bruck_all_gather,
     "ceil(log2 n) a + (n-1)/n B b"},
    {"ring", kAllGather, always, shape<kAllGather, per_rank>,
     [](Builder& b, const World&) { ring_all_gather(b, everyone(b), blocks(b)); }, costs::ring_all_gather,
     "(n-1) a + (n-1)/n B b"},
    {"hierarchical", kAllGather, some_equal_hosts, shape<kAllGather, per_rank>,
     [](Builder& b, const World& w) { hierarchical_all_gather(b, w.hosts, all(b)); }, costs::hierarchical_all_gather,
     "ring between hosts + direct inside hosts"},

    {"direct", kBroadcast, always, shape<kBroadcast, one>,
     [](Builder& b, const World&) { direct_broadcast(b, everyone(b), root(b), all(b)); }, costs::direct_broadcast,
     "a + (n-2) o + (n-1) B b"},
    {"binomial", kBroadcast, always, shape<kBroadcast, one>,
     [](Builder& b, const World&) { binomial_broadcast(b, everyone(b), root(b), all(b)); }, costs::binomial_broadcast,
     "ceil(log2 n) (a + B b)"},
    {"chain", kBroadcast, always, shape<kBroadcast, one>,
     [](Builder& b, const World&) { chain_broadcast(b, everyone(b), root(b), all(b)); }, costs::chain_broadcast,
     "(n-1) (a + P b) + (B-P) b, P bytes of a piece"},
    {"double_tree", kBroadcast, always, shape<kBroadcast, two>,
     [](Builder& b, const World&) { double_tree_broadcast(b, everyone(b), root(b), all(b)); },
     costs::double_tree_broadcast, "about 2 log2(n) (a + P b) + (B-P) b, P bytes of a piece"},
    {"hierarchical", kBroadcast, some_hosts, shape<kBroadcast, one>,
     [](Builder& b, const World& w) { hierarchical_broadcast(b, w.hosts, Tree::kBinomial, root(b), all(b)); },
     costs::hierarchical_broadcast, "binomial between hosts + binomial inside hosts"},
    {"hierarchical_chain", kBroadcast, some_hosts, shape<kBroadcast, one>,
     [](Builder& b, const World& w) { hierarchical_broadcast(b, w.hosts, Tree::kChain, root(b), all(b)); },
     costs::hierarchical_chain_broadcast, "chain between hosts + chain inside hosts"},

    {"direct", kReduce, always, shape<kReduce, one>,
     [](Builder& b, const World&) { direct_reduce(b, everyone(b), root(b), all(b), kYes); }, costs::direct_reduce,
     "a + (n-2) o + (n-1) B (b+g)"},
    {"binomial", kReduce, always, shape<kReduce, one>,
     [](Builder& b, const World&) { binomial_reduce(b, everyone(b), root(b), all(b), kYes); }, costs::binomial_reduce,
     "ceil(log2 n) (a + B (b+g))"},
    {"chain", kReduce, always, shape<kReduce, one>,
     [](Builder& b, const World&) { chain_reduce(b, everyone(b), root(b), all(b), kYes); }, costs::chain_reduce,
     "(n-1) (a + P (b+g)) + (B-P) (b+g), P bytes of a piece"},
    {"double_tree", kReduce, always, shape<kReduce, two>,
     [](Builder& b, const World&) { double_tree_reduce(b, everyone(b), root(b), all(b), kYes); },
     costs::double_tree_reduce, "about 2 log2(n) (a + P (b+g)) + (B-P) (b+g), P bytes of a piece"},
    {"hierarchical", kReduce, some_hosts, shape<kReduce, one>,
     [](Builder& b, const World& w) { hierarchical_reduce(b, w.hosts, Tree::kBinomial, root(b), all(b), kYes); },
     costs::hierarchical_reduce, "binomial inside hosts + binomial between hosts"},
    {"hierarchical_chain", kReduce, some_hosts, shape<kReduce, one>,
     [](Builder& b, const World& w) { hierarchical_reduce(b, w.hosts, Tree::kChain, root(b), all(b), kYes); },
     costs::hierarchical_chain_reduce, "chain inside hosts + chain between hosts"},
    {"ordered_binomial", kReduce, always, shape<kReduce, one>,
     [](Builder& b, const World&) { ordered_binomial_reduce(b, everyone(b), root(b), all(b), kYes); },
     costs::binomial_reduce, "ceil(log2 n) (a + B (b+g))", always},
    {"ordered_chains", kReduce, always, shape<kReduce, one>,
     [](Builder& b, const World&) { ordered_chains_reduce(b, everyone(b), root(b), all(b), kYes); },
     costs::ordered_chains_reduce, "(n-1) (a + P (b+g)) + (2B-P) (b+g), P bytes of a piece", always},

    // A barrier is an all-reduce of nothing.
    {"direct", kBarrier, always, shape<kBarrier, one>, direct_once, costs::direct_all_reduce, "a + (n-2) o"},
    {"recursive_doubling", kBarrier, always, shape<kBarrier, one>, recursive_doubling, costs::doubling_all_reduce,
     "log2(p) a + [n != p] 2 a"},
    {"binomial", kBarrier, always, shape<kBarrier, one>, binomial_both, costs::binomial_all_reduce, "2 ceil(log2 n) a"},
    {"hierarchical_doubling", kBarrier, some_hosts, shape<kBarrier, one>, leaders_doubling,
     costs::hierarchical_doubling_all_reduce, "binomial reduce + recursive doubling + binomial broadcast"},

    {"direct", kGather, always, shape<kGather, per_rank>, of_all<direct_gather>, costs::direct_gather,
     "a + (n-2) o + (n-1)/n B b"},
    {"binomial", kGather, always, shape<kGather, per_rank>, of_all<binomial_gather>, costs::binomial_gather,
     "ceil(log2 n) a + (n-1)/n B (b+g)"},

    {"direct", kScatter, always, shape<kScatter, per_rank>, of_all<direct_scatter>, costs::direct_gather,
     "a + (n-2) o + (n-1)/n B b"},
    {"binomial", kScatter, always, shape<kScatter, per_rank>, of_all<binomial_scatter>, costs::binomial_gather,
     "ceil(log2 n) a + (n-1)/n B (b+g)"},

    {"direct", kAllToAll, always, shape<kAllToAll, per_rank>, of_all<direct_all_to_all>, costs::direct_all_to_all,
     "a + (n-2) o + (n-1)/n B b"},
    {"bruck", kAllToAll, always, shape<kAllToAll, per_rank>, of_all<bruck_all_to_all>, costs::bruck_all_to_all,
     "ceil(log2 n) (a + B/2 (b+g))"},

    {"recursive_doubling", kScan, always, shape<kScan, one>, of_all<doubling_scan>, costs::doubling_scan,
     "ceil(log2 n) (a + B (b+g))", always},
    {"chain", kScan, always, shape<kScan, one>, of_all<chain_scan>, costs::chain_scan,
     "(n-1) (a + P (b+g)) + (B-P) (b+g), P bytes of a piece", always},

    {"recursive_doubling", kExscan, always, shape<kExscan, one>, of_all<doubling_exscan>, costs::doubling_exscan,
     "ceil(log2 n) (a + B (b+2g))", always},
    {"chain", kExscan, always, shape<kExscan, one>, of_all<chain_exscan>, costs::chain_exscan,
     "(n-1) (a + P (b+2g)) + (B-P) (b+2g), P bytes of a piece", always},

    // Where blocks have counts of their own: schedules whose every step moves one block, which is one chunk; and one
    // for each collective whose ranks do not know each other's counts, so that nobody chooses by them.
    {"direct", kAllGatherV, always, shape<kAllGatherV, per_rank>,
     [](Builder& b, const World&) { direct_all_gather(b, everyone(b), blocks(b)); }, costs::direct_all_gather,
     "a + (n-2) o + (n-1)/n B b"},
    {"ring", kAllGatherV, always, shape<kAllGatherV, per_rank>,
     [](Builder& b, const World&) { ring_all_gather(b, everyone(b), blocks(b)); }, costs::ring_all_gather,
     "(n-1) a + (n-1)/n B b"},

    {"direct", kReduceScatterV, always, shape<kReduceScatterV, per_rank>,
     [](Builder& b, const World&) { direct_reduce_scatter(b, everyone(b), blocks(b), kYes); },
     costs::direct_reduce_scatter, "a + (n-2) o + (n-1)/n B (b+g)"},
    {"ring", kReduceScatterV, always, shape<kReduceScatterV, per_rank>,
     [](Builder& b, const World&) { ring_reduce_scatter(b, everyone(b), blocks(b), kYes); }, costs::ring_reduce_scatter,
     "(n-1) a + (n-1)/n B b + B/n (g + (n-2) f)"},
    {"ordered_direct", kReduceScatterV, always, shape<kReduceScatterV, per_rank>,
     [](Builder& b, const World&) { ordered_direct_reduce_scatter(b, everyone(b), blocks(b), kYes); },
     costs::direct_reduce_scatter, "a + (n-2) o + (n-1)/n B (b+g)", always},

    {"direct", kAllToAllV, always, shape<kAllToAllV, per_rank>, of_all<direct_all_to_all>, costs::direct_all_to_all,
     "a + (n-2) o + (n-1)/n B b"},

    {"direct", kGatherV, always, shape<kGatherV, per_rank>, of_all<direct_gather>, costs::direct_gather,
     "a + (n-2) o + (n-1)/n B b"},

    {"direct", kScatterV, always, shape<kScatterV, per_rank>, of_all<direct_scatter>, costs::direct_gather,
     "a + (n-2) o + (n-1)/n B b"},
};

Status check_world(const World& world) {
  if (world.ranks < 1) return Status::invalid_argument("the number of ranks must be at least 1");
  if (world.hosts.empty()) return Status::ok();
  std::vector<char> seen(static_cast<std::size_t>(world.ranks), 0);
  int count = 0;
  for (const auto& host : world.hosts) {
    if (host.empty()) return Status::invalid_argument("a host has no ranks");
    for (const int rank : host) {
      if (rank < 0 || rank >= world.ranks || seen[static_cast<std::size_t>(rank)] != 0) {
        return Status::invalid_argument(fmt::format("rank {} is on two hosts, or is not below {}", rank, world.ranks));
      }
      seen[static_cast<std::size_t>(rank)] = 1;
      ++count;
    }
  }
  if (count != world.ranks) return Status::invalid_argument("not every rank is on a host");
  return Status::ok();
}

}  // namespace

std::span<const AlgorithmEntry> catalog() {
  return kCatalog;
}

const AlgorithmEntry* find(Collective collective, std::string_view name) {
  const auto at = std::find_if(std::begin(kCatalog), std::end(kCatalog),
                               [&](const AlgorithmEntry& e) { return e.collective == collective && e.name == name; });
  return at == std::end(kCatalog) ? nullptr : at;
}

Result<schedule::Schedule> make_schedule(const AlgorithmEntry& entry, const World& world, int rank, int root_rank) {
  Status status = check_world(world);
  if (!status.is_ok()) return status;
  const auto inside = [&](int r) { return r >= 0 && r < world.ranks; };
  if (!inside(rank) || !inside(root_rank)) {
    return Status::invalid_argument(fmt::format("rank {} or root {} is not below {}", rank, root_rank, world.ranks));
  }
  const std::string what = fmt::format("{} {}", name_of(entry.collective), entry.name);
  if (!entry.supports(world))
    return Status::invalid_argument(what + " does not support this division of the ranks into hosts");
  Builder builder(entry.shape(world, root_rank), rank);
  entry.generate(builder, world);
  Result<schedule::Schedule> schedule = builder.finish();
  if (!schedule.is_ok()) return schedule.status().with_context(what);
  return schedule;
}

}  // namespace tutti::internal::algorithms
