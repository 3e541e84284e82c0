#include "algorithms/hierarchical.h"

#include <algorithm>

#include "algorithms/chain.h"
#include "algorithms/direct.h"
#include "algorithms/doubling.h"
#include "algorithms/k_nomial.h"
#include "algorithms/ring.h"

namespace tutti::internal::algorithms {
namespace {

using HostPosition = Hosts::Position;

Group inside(const Hosts& hosts, const HostPosition& position, int me) {
  return Group(hosts[position.host], me);
}

// The members with one local rank on all hosts. REQUIRES: all hosts have that local rank.
Group across(const Hosts& hosts, std::size_t local_rank, int me) {
  if (hosts.are_in_order() && hosts.are_equal()) {
    const auto per_host = static_cast<int>(hosts.front().size());
    return Group::progression(static_cast<int>(local_rank), per_host, static_cast<int>(hosts.size()), me);
  }
  std::vector<int> ranks;
  for (const auto& host : hosts) ranks.push_back(host[local_rank]);
  return Group(std::move(ranks), me);
}

// The member of a host that acts for it: its first, or the root.
int leader_of(const Hosts& hosts, std::size_t host, int root) {
  return hosts.position_of(root).host == host ? root : hosts[host].front();
}

Group leaders(const Hosts& hosts, int root, int me) {
  std::vector<int> ranks;
  ranks.reserve(hosts.size());
  for (const auto& host : hosts) ranks.push_back(host.front());
  ranks[hosts.position_of(root).host] = root;
  return Group(std::move(ranks), me);
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

void hierarchical_all_reduce(Builder& b, const Hosts& hosts, ChunkRange c, Completes completes) {
  const HostPosition position = hosts.position_of(b.rank());
  const Group host = inside(hosts, position, b.rank());
  if (hosts.are_equal()) {
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
  const HostPosition position = hosts.position_of(b.rank());
  const Group host = inside(hosts, position, b.rank());
  tree_reduce(b, host, Tree::kBinomial, 0, c, Completes::kNo);
  if (position.local_rank == 0) doubling_all_reduce(b, across(hosts, 0, b.rank()), c, completes);
  tree_broadcast(b, host, Tree::kBinomial, 0, c);
}

void hierarchical_broadcast(Builder& b, const Hosts& hosts, Tree tree, int root, ChunkRange c) {
  const HostPosition position = hosts.position_of(b.rank());
  const Group host = inside(hosts, position, b.rank());
  const int head = leader_of(hosts, position.host, root);
  if (b.rank() == head) {
    const Group between = leaders(hosts, root, b.rank());
    tree_broadcast(b, between, tree, between.index_of(root), c);
  }
  tree_broadcast(b, host, tree, host.index_of(head), c);
}

void hierarchical_reduce(Builder& b, const Hosts& hosts, Tree tree, int root, ChunkRange c, Completes completes) {
  const HostPosition position = hosts.position_of(b.rank());
  const Group host = inside(hosts, position, b.rank());
  const int head = leader_of(hosts, position.host, root);
  tree_reduce(b, host, tree, host.index_of(head), c, Completes::kNo);
  if (b.rank() == head) {
    const Group between = leaders(hosts, root, b.rank());
    tree_reduce(b, between, tree, between.index_of(root), c, completes);
  }
}

void hierarchical_reduce_scatter(Builder& b, const Hosts& hosts, ChunkRange c, Completes completes) {
  const HostPosition position = hosts.position_of(b.rank());
  const std::vector<Part> parts = parts_by_local_rank(hosts, c);
  direct_reduce_scatter(b, inside(hosts, position, b.rank()), parts, Completes::kNo);
  ring_reduce_scatter(b, across(hosts, position.local_rank, b.rank()), one_part_each(parts[position.local_rank]),
                      completes);
}

void hierarchical_all_gather(Builder& b, const Hosts& hosts, ChunkRange c) {
  const HostPosition position = hosts.position_of(b.rank());
  const std::vector<Part> parts = parts_by_local_rank(hosts, c);
  ring_all_gather(b, across(hosts, position.local_rank, b.rank()), one_part_each(parts[position.local_rank]));
  direct_all_gather(b, inside(hosts, position, b.rank()), parts);
}

}  // namespace tutti::internal::algorithms
