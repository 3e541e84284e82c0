#include "algorithms/catalog.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "algorithms/bruck.h"
#include "algorithms/chain.h"
#include "algorithms/direct.h"
#include "algorithms/double_tree.h"
#include "algorithms/doubling.h"
#include "algorithms/halving.h"
#include "algorithms/k_nomial.h"
#include "algorithms/loaded.h"
#include "algorithms/ordered.h"
#include "algorithms/pairwise.h"
#include "algorithms/prefix.h"
#include "algorithms/ring.h"
#include "base/mutex.h"

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
  return w.hosts.size() > 1 && w.hosts.largest() > 1;
}
bool some_equal_hosts(const World& w) {
  return some_hosts(w) && w.hosts.are_equal();
}

bool hosts_in_order(const World& w) {
  return w.hosts.are_in_order();
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
  const std::size_t shares = w.hosts.are_equal() ? w.hosts.front().size() : 1;
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

template <Collective collective>
Shape in_pieces(const World& w, int root_rank, int pieces) {
  Shape s = shape<collective, one>(w, root_rank);
  s.chunks = static_cast<std::uint32_t>(pieces);
  return s;
}
constexpr Parameter kOnePiece{1, 2, kMostPieces};

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
void k_nomial_both(Builder& b, const World&, int radix) {
  k_nomial_all_reduce(b, everyone(b), all(b), radix, kYes);
}
void direct_once(Builder& b, const World&) {
  direct_all_reduce(b, everyone(b), all(b), kYes);
}
void leaders_doubling(Builder& b, const World& w) {
  hierarchical_doubling_all_reduce(b, w.hosts, all(b), kYes);
}

// Name and value agree.
constexpr AlgorithmEntry with_parameter(AlgorithmEntry entry, const char* name, int value) {
  entry.name = name;
  entry.parameter.value = value;
  return entry;
}
constexpr Parameter kBinary{2, kLeastRadix, kMostRadix};

constexpr AlgorithmEntry kTreeAllReduce{"k_nomial:2",  kAllReduce, always, shape<kAllReduce, one>,
                                        k_nomial_both, always,     kBinary};
constexpr AlgorithmEntry kTreeBroadcast{
    "k_nomial:2",
    kBroadcast,
    always,
    shape<kBroadcast, one>,
    [](Builder& b, const World&, int radix) { k_nomial_broadcast(b, everyone(b), root(b), all(b), radix); },
    nullptr,
    kBinary};
constexpr AlgorithmEntry kTreeReduce{
    "k_nomial:2",
    kReduce,
    always,
    shape<kReduce, one>,
    [](Builder& b, const World&, int radix) { k_nomial_reduce(b, everyone(b), root(b), all(b), radix, kYes); },
    nullptr,
    kBinary};
constexpr AlgorithmEntry kTreeBarrier{"k_nomial:2",  kBarrier, always, shape<kBarrier, one>,
                                      k_nomial_both, nullptr,  kBinary};
constexpr AlgorithmEntry kTreeGather{"k_nomial:2",
                                     kGather,
                                     always,
                                     shape<kGather, per_rank>,
                                     [](Builder& b, const World&, int radix) { k_nomial_gather(b, radix); },
                                     nullptr,
                                     kBinary};
constexpr AlgorithmEntry kTreeScatter{"k_nomial:2",
                                      kScatter,
                                      always,
                                      shape<kScatter, per_rank>,
                                      [](Builder& b, const World&, int radix) { k_nomial_scatter(b, radix); },
                                      nullptr,
                                      kBinary};

const AlgorithmEntry kCatalog[] = {
    {"direct", kAllReduce, always, shape<kAllReduce, one>, direct_once, always},
    {"direct_two_phase", kAllReduce, always, shape<kAllReduce, per_rank>,
     [](Builder& b, const World&) { direct_two_phase_all_reduce(b, everyone(b), all(b), kYes); }},
    {"recursive_doubling", kAllReduce, always, shape<kAllReduce, one>, recursive_doubling, always},
    {"halving_doubling", kAllReduce, always, shape<kAllReduce, per_folded>,
     [](Builder& b, const World&) { halving_doubling_all_reduce(b, everyone(b), all(b), kYes); }},
    {"ring", kAllReduce, always, shape<kAllReduce, per_rank>,
     [](Builder& b, const World&) { ring_all_reduce(b, everyone(b), all(b), kYes); }},
    kTreeAllReduce,
    with_parameter(kTreeAllReduce, "k_nomial:4", 4),
    with_parameter(kTreeAllReduce, "k_nomial:8", 8),
    {"double_tree", kAllReduce, always, shape<kAllReduce, two>,
     [](Builder& b, const World&) { double_tree_all_reduce(b, everyone(b), all(b), kYes); }},
    {"hierarchical", kAllReduce, some_hosts, shape<kAllReduce, per_local_rank_and_host>,
     [](Builder& b, const World& w) { hierarchical_all_reduce(b, w.hosts, all(b), kYes); }},
    {"hierarchical_doubling", kAllReduce, some_hosts, shape<kAllReduce, one>, leaders_doubling, hosts_in_order},
    {"ordered_two_phase", kAllReduce, always, shape<kAllReduce, per_rank>,
     [](Builder& b, const World&) { ordered_two_phase_all_reduce(b, everyone(b), all(b), kYes); }, always},

    {"direct", kReduceScatter, always, shape<kReduceScatter, per_rank>,
     [](Builder& b, const World&) { direct_reduce_scatter(b, everyone(b), blocks(b), kYes); }},
    {"recursive_halving", kReduceScatter, always, shape<kReduceScatter, per_rank>,
     [](Builder& b, const World&) { halving_reduce_scatter(b, everyone(b), all(b), kYes); }},
    {"ring", kReduceScatter, always, shape<kReduceScatter, per_rank>,
     [](Builder& b, const World&) { ring_reduce_scatter(b, everyone(b), blocks(b), kYes); }},
    {"hierarchical", kReduceScatter, some_equal_hosts, shape<kReduceScatter, per_rank>,
     [](Builder& b, const World& w) { hierarchical_reduce_scatter(b, w.hosts, all(b), kYes); }},
    {"ordered_direct", kReduceScatter, always, shape<kReduceScatter, per_rank>,
     [](Builder& b, const World&) { ordered_direct_reduce_scatter(b, everyone(b), blocks(b), kYes); }, always},

    {"direct", kAllGather, always, shape<kAllGather, per_rank>,
     [](Builder& b, const World&) { direct_all_gather(b, everyone(b), blocks(b)); }},
    {"bruck", kAllGather, always, shape<kAllGather, per_rank>,
     [](Builder& b, const World&) { bruck_all_gather(b, everyone(b), all(b)); }},
    {"recursive_doubling", kAllGather, always, shape<kAllGather, per_rank>,
     [](Builder& b, const World&) { doubling_all_gather(b, everyone(b), all(b)); }},
    {"ring", kAllGather, always, shape<kAllGather, per_rank>,
     [](Builder& b, const World&) { ring_all_gather(b, everyone(b), blocks(b)); }},
    {"hierarchical", kAllGather, some_equal_hosts, shape<kAllGather, per_rank>,
     [](Builder& b, const World& w) { hierarchical_all_gather(b, w.hosts, all(b)); }},

    {"direct", kBroadcast, always, shape<kBroadcast, one>,
     [](Builder& b, const World&) { direct_broadcast(b, everyone(b), root(b), all(b)); }},
    kTreeBroadcast,
    with_parameter(kTreeBroadcast, "k_nomial:4", 4),
    with_parameter(kTreeBroadcast, "k_nomial:8", 8),
    {"chain", kBroadcast, always, in_pieces<kBroadcast>,
     [](Builder& b, const World&, int pieces) { chain_broadcast(b, everyone(b), root(b), all(b), pieces); }, nullptr,
     kOnePiece},
    {"double_tree", kBroadcast, always, shape<kBroadcast, two>,
     [](Builder& b, const World&) { double_tree_broadcast(b, everyone(b), root(b), all(b)); }},
    {"hierarchical", kBroadcast, some_hosts, shape<kBroadcast, one>,
     [](Builder& b, const World& w) { hierarchical_broadcast(b, w.hosts, Tree::kBinomial, root(b), all(b)); }},
    {"hierarchical_chain", kBroadcast, some_hosts, shape<kBroadcast, one>,
     [](Builder& b, const World& w) { hierarchical_broadcast(b, w.hosts, Tree::kChain, root(b), all(b)); }},

    {"direct", kReduce, always, shape<kReduce, one>,
     [](Builder& b, const World&) { direct_reduce(b, everyone(b), root(b), all(b), kYes); }},
    kTreeReduce,
    with_parameter(kTreeReduce, "k_nomial:4", 4),
    with_parameter(kTreeReduce, "k_nomial:8", 8),
    {"chain", kReduce, always, in_pieces<kReduce>,
     [](Builder& b, const World&, int pieces) { chain_reduce(b, everyone(b), root(b), all(b), pieces, kYes); }, nullptr,
     kOnePiece},
    {"double_tree", kReduce, always, shape<kReduce, two>,
     [](Builder& b, const World&) { double_tree_reduce(b, everyone(b), root(b), all(b), kYes); }},
    {"hierarchical", kReduce, some_hosts, shape<kReduce, one>,
     [](Builder& b, const World& w) { hierarchical_reduce(b, w.hosts, Tree::kBinomial, root(b), all(b), kYes); }},
    {"hierarchical_chain", kReduce, some_hosts, shape<kReduce, one>,
     [](Builder& b, const World& w) { hierarchical_reduce(b, w.hosts, Tree::kChain, root(b), all(b), kYes); }},
    {"ordered_binomial", kReduce, always, shape<kReduce, one>,
     [](Builder& b, const World&) { ordered_binomial_reduce(b, everyone(b), root(b), all(b), kYes); }, always},
    {"ordered_chains", kReduce, always, shape<kReduce, one>,
     [](Builder& b, const World&) { ordered_chains_reduce(b, everyone(b), root(b), all(b), kYes); }, always},

    // A barrier is an all-reduce of nothing.
    {"direct", kBarrier, always, shape<kBarrier, one>, direct_once},
    {"recursive_doubling", kBarrier, always, shape<kBarrier, one>, recursive_doubling},
    kTreeBarrier,
    with_parameter(kTreeBarrier, "k_nomial:4", 4),
    with_parameter(kTreeBarrier, "k_nomial:8", 8),
    {"hierarchical_doubling", kBarrier, some_hosts, shape<kBarrier, one>, leaders_doubling},

    {"direct", kGather, always, shape<kGather, per_rank>, of_all<direct_gather>},
    kTreeGather,
    with_parameter(kTreeGather, "k_nomial:4", 4),
    with_parameter(kTreeGather, "k_nomial:8", 8),

    {"direct", kScatter, always, shape<kScatter, per_rank>, of_all<direct_scatter>},
    kTreeScatter,
    with_parameter(kTreeScatter, "k_nomial:4", 4),
    with_parameter(kTreeScatter, "k_nomial:8", 8),

    {"direct", kAllToAll, always, shape<kAllToAll, per_rank>, of_all<direct_all_to_all>},
    {"bruck", kAllToAll, always, shape<kAllToAll, per_rank>, of_all<bruck_all_to_all>},
    {"pairwise", kAllToAll, always, shape<kAllToAll, per_rank>, of_all<pairwise_all_to_all>},

    {"recursive_doubling", kScan, always, shape<kScan, one>, of_all<doubling_scan>, always},
    {"chain", kScan, always, in_pieces<kScan>, of_all<chain_scan>, always, kOnePiece},

    {"recursive_doubling", kExscan, always, shape<kExscan, one>, of_all<doubling_exscan>, always},
    {"chain", kExscan, always, in_pieces<kExscan>, of_all<chain_exscan>, always, kOnePiece},

    // Where blocks have counts of their own: schedules whose every step moves one block, which is one chunk. Ranks that
    // do not know each other's counts choose as for a vector of one byte for each rank.
    {"direct", kAllGatherV, always, shape<kAllGatherV, per_rank>,
     [](Builder& b, const World&) { direct_all_gather(b, everyone(b), blocks(b)); }},
    {"ring", kAllGatherV, always, shape<kAllGatherV, per_rank>,
     [](Builder& b, const World&) { ring_all_gather(b, everyone(b), blocks(b)); }},

    {"direct", kReduceScatterV, always, shape<kReduceScatterV, per_rank>,
     [](Builder& b, const World&) { direct_reduce_scatter(b, everyone(b), blocks(b), kYes); }},
    {"ring", kReduceScatterV, always, shape<kReduceScatterV, per_rank>,
     [](Builder& b, const World&) { ring_reduce_scatter(b, everyone(b), blocks(b), kYes); }},
    {"ordered_direct", kReduceScatterV, always, shape<kReduceScatterV, per_rank>,
     [](Builder& b, const World&) { ordered_direct_reduce_scatter(b, everyone(b), blocks(b), kYes); }, always},

    {"direct", kAllToAllV, always, shape<kAllToAllV, per_rank>, of_all<direct_all_to_all>},
    {"pairwise", kAllToAllV, always, shape<kAllToAllV, per_rank>, of_all<pairwise_all_to_all>},

    {"direct", kGatherV, always, shape<kGatherV, per_rank>, of_all<direct_gather>},

    {"direct", kScatterV, always, shape<kScatterV, per_rank>, of_all<direct_scatter>},
};

// What stands before the colon.
std::string_view stem_of(std::string_view name) {
  return name.substr(0, name.find(':'));
}

// What stands behind it, written as the catalog writes it; 0 if that is none.
int value_of(std::string_view name) {
  const std::string_view digits = name.substr(std::min(name.size(), stem_of(name).size() + 1));
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size() && digits.front() != '0';
  return is_number ? value : 0;
}

const AlgorithmEntry* find_listed(Collective collective, std::string_view name) {
  const auto at = std::find_if(std::begin(kCatalog), std::end(kCatalog),
                               [&](const AlgorithmEntry& e) { return e.collective == collective && e.name == name; });
  return at == std::end(kCatalog) ? nullptr : at;
}

// Entries that the catalog does not list and somebody has asked for. Never freed: plans point to them.
class Unlisted {
 public:
  const AlgorithmEntry* entry(const AlgorithmEntry& family, std::string_view name, int value) TUTTI_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto [at, is_new] = entries_.try_emplace(std::pair(family.collective, std::string(name)), family);
    if (is_new) at->second = with_parameter(family, at->first.second.c_str(), value);
    return &at->second;
  }

 private:
  Mutex mutex_;
  std::map<std::pair<Collective, std::string>, AlgorithmEntry> entries_ TUTTI_GUARDED_BY(mutex_);
};

const AlgorithmEntry* unlisted(const AlgorithmEntry& family, std::string_view name, int value) {
  static auto* const all = new Unlisted();
  return all->entry(family, name, value);
}

Status check_world(const World& world) {
  if (world.ranks < 1) return Status::invalid_argument("the number of ranks must be at least 1");
  return world.hosts.check(world.ranks);
}

}  // namespace

std::span<const AlgorithmEntry> catalog() {
  return kCatalog;
}

const AlgorithmEntry* find(Collective collective, std::string_view name) {
  if (const AlgorithmEntry* listed = find_listed(collective, name); listed != nullptr) return listed;
  if (const AlgorithmEntry* loaded = find_loaded(collective, name); loaded != nullptr) return loaded;
  const int value = value_of(name);
  const auto family = std::find_if(std::begin(kCatalog), std::end(kCatalog), [&](const AlgorithmEntry& e) {
    return e.collective == collective && e.parameter.value != 0 && stem_of(e.name) == stem_of(name) &&
           value >= e.parameter.least && value <= e.parameter.most;
  });
  return family == std::end(kCatalog) ? nullptr : unlisted(*family, name, value);
}

std::string AlgorithmEntry::identity() const {
  if (write == nullptr) return name;
  // FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : program_of(*this)->text()) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{} {:016x}", name, hash);
}

std::vector<const AlgorithmEntry*> candidates(Collective collective) {
  std::vector<const AlgorithmEntry*> all;
  for (const AlgorithmEntry& e : kCatalog) {
    if (e.collective == collective) all.push_back(&e);
  }
  for (const AlgorithmEntry* e : loaded_entries()) {
    if (e->collective == collective) all.push_back(e);
  }
  return all;
}

bool is_listed(const AlgorithmEntry& entry) {
  return find_listed(entry.collective, entry.name) != nullptr;
}

bool takes_parameter(std::string_view name) {
  return std::any_of(std::begin(kCatalog), std::end(kCatalog),
                     [&](const AlgorithmEntry& e) { return e.parameter.value != 0 && stem_of(e.name) == name; });
}

std::string known_names(const std::function<bool(const AlgorithmEntry&)>& which) {
  std::string text;
  std::set<std::string_view> seen;
  std::map<std::string_view, Parameter> families;
  const auto add = [&](const AlgorithmEntry& e) {
    if (!which(e) || !seen.insert(e.name).second) return;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", e.name);
    if (e.write == nullptr && e.parameter.value != 0) families.try_emplace(stem_of(e.name), e.parameter);
  };
  for (const AlgorithmEntry& e : kCatalog) add(e);
  for (const AlgorithmEntry* e : loaded_entries()) add(*e);
  for (const auto& [stem, parameter] : families) {
    text += fmt::format("; {}:K for any K from {} to {}", stem, parameter.least, parameter.most);
  }
  return text;
}

Result<schedule::Schedule> make_schedule(const AlgorithmEntry& entry, const World& world, int rank, int root_rank) {
  Status status = check_world(world);
  if (!status.is_ok()) return status;
  for (const auto& [of, r] : {std::pair("rank", rank), std::pair("root", root_rank)}) {
    if (r < 0 || r >= world.ranks)
      return Status::invalid_argument(fmt::format("{} {} is not from 0 to {}", of, r, world.ranks - 1));
  }
  const std::string what = fmt::format("{} {}", name_of(entry.collective), entry.name);
  if (!entry.supports(world))
    return Status::invalid_argument(what + " does not support this division of the ranks into hosts");
  if (entry.write != nullptr) return entry.write(world, rank, root_rank, entry.parameter.value);
  Builder builder(entry.shape(world, root_rank), rank);
  entry.generate(builder, world, entry.parameter.value);
  Result<schedule::Schedule> schedule = builder.finish();
  if (!schedule.is_ok()) return schedule.status().with_context(what);
  return schedule;
}

}  // namespace tutti::internal::algorithms
