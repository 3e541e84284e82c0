#include "algorithms/hierarchical.h"

#include <algorithm>

#include "algorithms/chain.h"
#include "algorithms/direct.h"
#include "algorithms/doubling.h"
#include "algorithms/k_nomial.h"
#include "algorithms/ring.h"

namespace tutti::internal::algorithms {
namespace {

// Host and local rank of a rank.
struct HostPosition {
  std::size_t host = 0;
  std::size_t local_rank = 0;  // among the members of the host
};

HostPosition find_position(const Hosts& hosts, int rank) {
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const auto at = std::find(hosts[h].begin(), hosts[h].end(), rank);
    if (at != hosts[h].end()) return {h, static_cast<std::size_t>(at - hosts[h].begin())};
  }
  return {};
}

Group inside(const Hosts& hosts, const HostPosition& position, int me) {
  return Group(hosts[position.host], me);
}

// The members with one local rank on all hosts. REQUIRES: all hosts have that local rank.
Group across(const Hosts& hosts, std::size_t local_rank, int me) {
  std::vector<int> ranks;
  for (const auto& host : hosts) ranks.push_back(host[local_rank]);
  return Group(std::move(ranks), me);
}

// One member of each host: its first, or the root.
std::vector<int> leaders(const Hosts& hosts, int root) {
  std::vector<int> ranks;
  for (const auto& host : hosts) {
    const bool has_root = std::find(host.begin(), host.end(), root) != host.end();
    ranks.push_back(has_root ? root : host.front());
  }
  return ranks;
}

// Part j: the blocks of the ranks with local rank j on all hosts.
std::vector<Part> parts_by_local_rank(const Hosts& hosts, ChunkRange c) {
  const auto ranks = static_cast<std::uint32_t>(hosts.size() * hosts.front().size());
  std::vector<Part> parts(hosts.front().size());
  for (const auto& host : hosts) {
    for (std::size_t j = 0; j < host.size(); ++j) {
      parts[j].push_back(c.part(static_cast<std::uint32_t>(host[j]), ranks));
    }
  }
  return parts;
}

// The blocks of one local rank as one part for each host.
std::vector<Part> one_part_each(const Part& blocks) {
  std::vector<Part> parts;
  for (const ChunkRange& c : blocks) parts.push_back({c});
  return parts;
}

constexpr int kBinomial = 2;  // radix

void tree_broadcast(Builder& b, const Group& g, Tree tree, int root, ChunkRange c) {
  if (tree == Tree::kChain) return chain_broadcast(b, g, root, c);
  k_nomial_broadcast(b, g, root, c, kBinomial);
}

void tree_reduce(Builder& b, const Group& g, Tree tree, int root, ChunkRange c, Completes completes) {
  if (tree == Tree::kChain) return chain_reduce(b, g, root, c, 1, completes);
  k_nomial_reduce(b, g, root, c, kBinomial, completes);
}

}  // namespace

bool equal_hosts(const Hosts& hosts) {
  return std::all_of(hosts.begin(), hosts.end(), [&](const auto& h) { return h.size() == hosts.front().size(); });
}

std::size_t largest_host(const Hosts& hosts) {
  std::size_t most = 0;
  for (const auto& host : hosts) most = std::max(most, host.size());
  return most;
}

void hierarchical_all_reduce(Builder& b, const Hosts& hosts, ChunkRange c, Completes completes) {
  const HostPosition position = find_position(hosts, b.rank());
  const Group host = inside(hosts, position, b.rank());
  if (equal_hosts(hosts)) {
    const std::vector<Part> parts = equal_parts(c, host.size());
    direct_reduce_scatter(b, host, parts, Completes::kNo);
    ring_all_reduce(b, across(hosts, position.local_rank, b.rank()), parts[position.local_rank].front(), completes);
    direct_all_gather(b, host, parts);
    return;
  }
  chain_reduce(b, host, 0, c, 1, Completes::kNo);
  if (position.local_rank == 0) ring_all_reduce(b, across(hosts, 0, b.rank()), c, completes);
  chain_broadcast(b, host, 0, c);
}

void hierarchical_doubling_all_reduce(Builder& b, const Hosts& hosts, ChunkRange c, Completes completes) {
  const HostPosition position = find_position(hosts, b.rank());
  const Group host = inside(hosts, position, b.rank());
  tree_reduce(b, host, Tree::kBinomial, 0, c, Completes::kNo);
  if (position.local_rank == 0) doubling_all_reduce(b, across(hosts, 0, b.rank()), c, completes);
  tree_broadcast(b, host, Tree::kBinomial, 0, c);
}

void hierarchical_broadcast(Builder& b, const Hosts& hosts, Tree tree, int root, ChunkRange c) {
  const HostPosition position = find_position(hosts, b.rank());
  const Group host = inside(hosts, position, b.rank());
  const std::vector<int> heads = leaders(hosts, root);
  const int head = heads[position.host];
  if (b.rank() == head) {
    const Group between(heads, b.rank());
    tree_broadcast(b, between, tree, between.index_of(root), c);
  }
  tree_broadcast(b, host, tree, host.index_of(head), c);
}

void hierarchical_reduce(Builder& b, const Hosts& hosts, Tree tree, int root, ChunkRange c, Completes completes) {
  const HostPosition position = find_position(hosts, b.rank());
  const Group host = inside(hosts, position, b.rank());
  const std::vector<int> heads = leaders(hosts, root);
  const int head = heads[position.host];
  tree_reduce(b, host, tree, host.index_of(head), c, Completes::kNo);
  if (b.rank() == head) {
    const Group between(heads, b.rank());
    tree_reduce(b, between, tree, between.index_of(root), c, completes);
  }
}

void hierarchical_reduce_scatter(Builder& b, const Hosts& hosts, ChunkRange c, Completes completes) {
  const HostPosition position = find_position(hosts, b.rank());
  const std::vector<Part> parts = parts_by_local_rank(hosts, c);
  direct_reduce_scatter(b, inside(hosts, position, b.rank()), parts, Completes::kNo);
  ring_reduce_scatter(b, across(hosts, position.local_rank, b.rank()), one_part_each(parts[position.local_rank]),
                      completes);
}

void hierarchical_all_gather(Builder& b, const Hosts& hosts, ChunkRange c) {
  const HostPosition position = find_position(hosts, b.rank());
  const std::vector<Part> parts = parts_by_local_rank(hosts, c);
  ring_all_gather(b, across(hosts, position.local_rank, b.rank()), one_part_each(parts[position.local_rank]));
  direct_all_gather(b, inside(hosts, position, b.rank()), parts);
}

}  // namespace tutti::internal::algorithms
