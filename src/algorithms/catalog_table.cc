
#include "algorithms/bruck.h"
#include "algorithms/catalog.h"
#include "algorithms/chain.h"
#include "algorithms/direct.h"
#include "algorithms/double_tree.h"
#include "algorithms/doubling.h"
#include "algorithms/halving.h"
#include "algorithms/k_nomial.h"
#include "algorithms/ordered.h"
#include "algorithms/pairwise.h"
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
// For hierarchical algorithms, the parameter is the number of outermost divisions that they use; without a parameter in
// the name, all.
constexpr int kAllDivisions = 64;
constexpr Parameter kDivisions{kAllDivisions, 1, kAllDivisions - 1, Parameter::Of::kDivisions};

bool some_groups(const World& w, int divisions) {
  const std::size_t least = divisions == kAllDivisions ? 1 : static_cast<std::size_t>(divisions);
  return w.groups().size() >= least;
}
Hierarchy groups_of(const World& w, int divisions) {
  return w.groups().outermost(static_cast<std::size_t>(divisions));
}
bool some_equal_groups(const World& w, int divisions) {
  return some_groups(w, divisions) && groups_of(w, divisions).are_equal();
}

bool groups_in_order(const World& w) {
  return w.groups().are_in_order();
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
// Equal groups: each member of the innermost groups takes a share, and so on; the ring of the outermost groups cuts it
// again.
int per_place(const World& w, int divisions) {
  const Hierarchy groups = groups_of(w, divisions);
  return groups.are_equal() ? w.ranks : static_cast<int>(groups[0].size());
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

Shape by_places(const World& w, int /*root_rank*/, int divisions) {
  Shape s = shape<Collective::kAllReduce, one>(w, 0);
  s.chunks = static_cast<std::uint32_t>(per_place(w, divisions));
  return s;
}

// For rings: the channels. More than one is for hosts with several network ports.
constexpr int kMostChannels = 64;
constexpr Parameter kOneChannel{1, 2, kMostChannels, Parameter::Of::kPorts};
bool some_per_host(const World& w, int channels) {
  return channels == 1 || (w.hosts.size() > 1 && w.hosts.largest() >= static_cast<std::size_t>(channels));
}
template <Collective collective>
Shape by_channels(const World& w, int /*root_rank*/, int channels) {
  Shape s = shape<collective, per_rank>(w, 0);
  s.chunks *= static_cast<std::uint32_t>(channels);
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

using enum Collective;

// Generators that need only the builder, and the parameter.
template <void (*generate)(Builder&)>
void of_all(Builder& b, const World&) {
  generate(b);
}
template <void (*generate)(Builder&, int)>
void of_all_by(Builder& b, const World&, int parameter) {
  generate(b, parameter);
}

void recursive_doubling(Builder& b, const World&) {
  doubling_all_reduce(b, everyone(b), all(b), kYes);
}
void direct_once(Builder& b, const World&) {
  direct_all_reduce(b, everyone(b), all(b), kYes);
}
void single_tree_all_reduce(Builder& b, const World&, int radix) {
  k_nomial_all_reduce(b, everyone(b), all(b), radix, kYes);
}
void single_tree_broadcast(Builder& b, const World&, int radix) {
  k_nomial_broadcast(b, everyone(b), root(b), all(b), radix);
}
void single_tree_reduce(Builder& b, const World&, int radix) {
  k_nomial_reduce(b, everyone(b), root(b), all(b), radix, kYes);
}
void rings_all_reduce(Builder& b, const World& w, int channels) {
  if (channels == 1) return ring_all_reduce(b, everyone(b), all(b), kYes);
  channel_rings_all_reduce(b, w.hosts, channels, all(b), kYes);
}
void rings_reduce_scatter(Builder& b, const World& w, int channels) {
  if (channels == 1) return ring_reduce_scatter(b, everyone(b), blocks(b), kYes);
  channel_rings_reduce_scatter(b, w.hosts, channels, all(b), kYes);
}
void rings_all_gather(Builder& b, const World& w, int channels) {
  if (channels == 1) return ring_all_gather(b, everyone(b), blocks(b));
  channel_rings_all_gather(b, w.hosts, channels, all(b));
}
void leaders_doubling(Builder& b, const World& w, int divisions) {
  hierarchical_doubling_all_reduce(b, groups_of(w, divisions), all(b), kYes);
}
void groups_all_reduce(Builder& b, const World& w, int divisions) {
  hierarchical_all_reduce(b, groups_of(w, divisions), all(b), kYes);
}
void groups_reduce_scatter(Builder& b, const World& w, int divisions) {
  hierarchical_reduce_scatter(b, groups_of(w, divisions), all(b), kYes);
}
void groups_all_gather(Builder& b, const World& w, int divisions) {
  hierarchical_all_gather(b, groups_of(w, divisions), all(b));
}
template <Tree tree>
void between_and_inside(Builder& b, const World& w, int divisions) {
  hierarchical_broadcast(b, groups_of(w, divisions), tree, root(b), all(b));
}
template <Tree tree>
void inside_and_between(Builder& b, const World& w, int divisions) {
  hierarchical_reduce(b, groups_of(w, divisions), tree, root(b), all(b), kYes);
}

constexpr Parameter kBinary{2, kLeastRadix, kMostRadix};

constexpr AlgorithmEntry kTreeAllReduce{"k_nomial:2",           kAllReduce, always, shape<kAllReduce, one>,
                                        single_tree_all_reduce, always,     kBinary};
constexpr AlgorithmEntry kTreeBroadcast{"k_nomial:2",          kBroadcast, always, shape<kBroadcast, one>,
                                        single_tree_broadcast, nullptr,    kBinary};
constexpr AlgorithmEntry kTreeReduce{"k_nomial:2",       kReduce, always, shape<kReduce, one>,
                                     single_tree_reduce, nullptr, kBinary};
constexpr AlgorithmEntry kTreeBarrier{"k_nomial:2",           kBarrier, always, shape<kBarrier, one>,
                                      single_tree_all_reduce, nullptr,  kBinary};
constexpr AlgorithmEntry kTreeGather{
    "k_nomial:2", kGather, always, shape<kGather, per_rank>, of_all_by<k_nomial_gather>, nullptr, kBinary};
constexpr AlgorithmEntry kTreeScatter{
    "k_nomial:2", kScatter, always, shape<kScatter, per_rank>, of_all_by<k_nomial_scatter>, nullptr, kBinary};

constexpr AlgorithmEntry kRingAllReduce{"ring",           kAllReduce, some_per_host, by_channels<kAllReduce>,
                                        rings_all_reduce, nullptr,    kOneChannel};
constexpr AlgorithmEntry kRingReduceScatter{
    "ring", kReduceScatter, some_per_host, by_channels<kReduceScatter>, rings_reduce_scatter, nullptr, kOneChannel};
constexpr AlgorithmEntry kRingAllGather{"ring",           kAllGather, some_per_host, by_channels<kAllGather>,
                                        rings_all_gather, nullptr,    kOneChannel};

// With all divisions; and with only the outermost, if there are more.
constexpr AlgorithmEntry kHierarchicalAllReduce{"hierarchical",    kAllReduce, some_groups, by_places,
                                                groups_all_reduce, nullptr,    kDivisions};
constexpr AlgorithmEntry kLeadersAllReduce{
    "hierarchical_doubling", kAllReduce,      some_groups, shape<kAllReduce, one>,
    leaders_doubling,        groups_in_order, kDivisions};
constexpr AlgorithmEntry kHierarchicalReduceScatter{
    "hierarchical",        kReduceScatter, some_equal_groups, shape<kReduceScatter, per_rank>,
    groups_reduce_scatter, nullptr,        kDivisions};
constexpr AlgorithmEntry kHierarchicalAllGather{
    "hierarchical", kAllGather, some_equal_groups, shape<kAllGather, per_rank>, groups_all_gather, nullptr, kDivisions};
constexpr AlgorithmEntry kHierarchicalBroadcast{
    "hierarchical", kBroadcast, some_groups, shape<kBroadcast, one>, between_and_inside<Tree::kBinomial>,
    nullptr,        kDivisions};
constexpr AlgorithmEntry kHierarchicalReduce{
    "hierarchical", kReduce,   some_groups, shape<kReduce, one>, inside_and_between<Tree::kBinomial>,
    nullptr,        kDivisions};
constexpr AlgorithmEntry kLeadersBarrier{"hierarchical_doubling", kBarrier, some_groups, shape<kBarrier, one>,
                                         leaders_doubling,        nullptr,  kDivisions};

const AlgorithmEntry kCatalog[] = {
    {"direct", kAllReduce, always, shape<kAllReduce, one>, direct_once, always},
    {"direct_two_phase", kAllReduce, always, shape<kAllReduce, per_rank>,
     [](Builder& b, const World&) { direct_two_phase_all_reduce(b, everyone(b), all(b), kYes); }},
    {"recursive_doubling", kAllReduce, always, shape<kAllReduce, one>, recursive_doubling, always},
    {"halving_doubling", kAllReduce, always, shape<kAllReduce, per_folded>,
     [](Builder& b, const World&) { halving_doubling_all_reduce(b, everyone(b), all(b), kYes); }},
    kRingAllReduce,
    with_parameter(kRingAllReduce, "ring:2", 2),
    kTreeAllReduce,
    with_parameter(kTreeAllReduce, "k_nomial:4", 4),
    with_parameter(kTreeAllReduce, "k_nomial:8", 8),
    {"double_tree", kAllReduce, always, shape<kAllReduce, two>,
     [](Builder& b, const World&) { double_tree_all_reduce(b, everyone(b), all(b), kYes); }},
    kHierarchicalAllReduce,
    with_parameter(kHierarchicalAllReduce, "hierarchical:1", 1),
    kLeadersAllReduce,
    with_parameter(kLeadersAllReduce, "hierarchical_doubling:1", 1),
    {"ordered_two_phase", kAllReduce, always, shape<kAllReduce, per_rank>,
     [](Builder& b, const World&) { ordered_two_phase_all_reduce(b, everyone(b), all(b), kYes); }, always},

    {"direct", kReduceScatter, always, shape<kReduceScatter, per_rank>,
     [](Builder& b, const World&) { direct_reduce_scatter(b, everyone(b), blocks(b), kYes); }},
    {"recursive_halving", kReduceScatter, always, shape<kReduceScatter, per_rank>,
     [](Builder& b, const World&) { halving_reduce_scatter(b, everyone(b), all(b), kYes); }},
    kRingReduceScatter,
    with_parameter(kRingReduceScatter, "ring:2", 2),
    kHierarchicalReduceScatter,
    with_parameter(kHierarchicalReduceScatter, "hierarchical:1", 1),
    {"ordered_direct", kReduceScatter, always, shape<kReduceScatter, per_rank>,
     [](Builder& b, const World&) { ordered_direct_reduce_scatter(b, everyone(b), blocks(b), kYes); }, always},

    {"direct", kAllGather, always, shape<kAllGather, per_rank>,
     [](Builder& b, const World&) { direct_all_gather(b, everyone(b), blocks(b)); }},
    {"bruck", kAllGather, always, shape<kAllGather, per_rank>,
     [](Builder& b, const World&) { bruck_all_gather(b, everyone(b), all(b)); }},
    {"recursive_doubling", kAllGather, always, shape<kAllGather, per_rank>,
     [](Builder& b, const World&) { doubling_all_gather(b, everyone(b), all(b)); }},
    kRingAllGather,
    with_parameter(kRingAllGather, "ring:2", 2),
    kHierarchicalAllGather,
    with_parameter(kHierarchicalAllGather, "hierarchical:1", 1),

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
    kHierarchicalBroadcast,
    with_parameter(kHierarchicalBroadcast, "hierarchical:1", 1),
    {"hierarchical_chain", kBroadcast, some_groups, shape<kBroadcast, one>, between_and_inside<Tree::kChain>, nullptr,
     kDivisions},

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
    kHierarchicalReduce,
    with_parameter(kHierarchicalReduce, "hierarchical:1", 1),
    {"hierarchical_chain", kReduce, some_groups, shape<kReduce, one>, inside_and_between<Tree::kChain>, nullptr,
     kDivisions},
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
    kLeadersBarrier,
    with_parameter(kLeadersBarrier, "hierarchical_doubling:1", 1),

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

    // For blocks with different counts: schedules whose every step moves one block, which is one chunk. Ranks that do
    // not know each other's counts choose as for a vector of one byte for each rank.
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

}  // namespace

std::span<const AlgorithmEntry> catalog() {
  return kCatalog;
}

}  // namespace tutti::internal::algorithms
