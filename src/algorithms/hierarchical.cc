#include "algorithms/hierarchical.h"

#include <algorithm>

#include "algorithms/binomial.h"
#include "algorithms/chain.h"
#include "algorithms/direct.h"
#include "algorithms/doubling.h"
#include "algorithms/ring.h"

namespace tutti::internal::algorithms {
namespace {

// Where this rank stands.
struct Place {
  std::size_t host = 0;
  std::size_t seat = 0;  // among the members of the host
};

Place find_place(const Hosts& hosts, int rank) {
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const auto at = std::find(hosts[h].begin(), hosts[h].end(), rank);
    if (at != hosts[h].end()) return {h, static_cast<std::size_t>(at - hosts[h].begin())};
  }
  return {};
}

Group inside(const Hosts& hosts, const Place& place, int me) {
  return Group(hosts[place.host], me);
}

// The members in one seat of all hosts. REQUIRES: all hosts have that seat.
Group across(const Hosts& hosts, std::size_t seat, int me) {
  std::vector<int> ranks;
  for (const auto& host : hosts) ranks.push_back(host[seat]);
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

// Part j: the blocks of the ranks in seat j of all hosts.
std::vector<Part> parts_by_seat(const Hosts& hosts, ChunkRange c) {
  const auto ranks = static_cast<std::uint32_t>(hosts.size() * hosts.front().size());
  std::vector<Part> parts(hosts.front().size());
  for (const auto& host : hosts) {
    for (std::size_t j = 0; j < host.size(); ++j) {
      parts[j].push_back(c.part(static_cast<std::uint32_t>(host[j]), ranks));
    }
  }
  return parts;
}

// The blocks of one seat as one part for each host.
std::vector<Part> one_part_each(const Part& blocks) {
  std::vector<Part> parts;
  for (const ChunkRange& c : blocks) parts.push_back({c});
  return parts;
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
  const Place place = find_place(hosts, b.rank());
  const Group host = inside(hosts, place, b.rank());
  if (equal_hosts(hosts)) {
    const std::vector<Part> parts = equal_parts(c, host.size());
    direct_reduce_scatter(b, host, parts, Completes::kNo);
    ring_all_reduce(b, across(hosts, place.seat, b.rank()), parts[place.seat].front(), completes);
    direct_all_gather(b, host, parts);
    return;
  }
  chain_reduce(b, host, 0, c, Completes::kNo);
  if (place.seat == 0) ring_all_reduce(b, across(hosts, 0, b.rank()), c, completes);
  chain_broadcast(b, host, 0, c);
}

void hierarchical_doubling_all_reduce(Builder& b, const Hosts& hosts, ChunkRange c, Completes completes) {
  const Place place = find_place(hosts, b.rank());
  const Group host = inside(hosts, place, b.rank());
  binomial_reduce(b, host, 0, c, Completes::kNo);
  if (place.seat == 0) doubling_all_reduce(b, across(hosts, 0, b.rank()), c, completes);
  binomial_broadcast(b, host, 0, c);
}

void hierarchical_broadcast(Builder& b, const Hosts& hosts, Tree tree, int root, ChunkRange c) {
  const Place place = find_place(hosts, b.rank());
  const Group host = inside(hosts, place, b.rank());
  const std::vector<int> heads = leaders(hosts, root);
  const int head = heads[place.host];
  const auto broadcast = tree == Tree::kChain ? chain_broadcast : binomial_broadcast;
  if (b.rank() == head) {
    const Group between(heads, b.rank());
    broadcast(b, between, between.index_of(root), c);
  }
  broadcast(b, host, host.index_of(head), c);
}

void hierarchical_reduce(Builder& b, const Hosts& hosts, Tree tree, int root, ChunkRange c, Completes completes) {
  const Place place = find_place(hosts, b.rank());
  const Group host = inside(hosts, place, b.rank());
  const std::vector<int> heads = leaders(hosts, root);
  const int head = heads[place.host];
  const auto reduce = tree == Tree::kChain ? chain_reduce : binomial_reduce;
  reduce(b, host, host.index_of(head), c, Completes::kNo);
  if (b.rank() == head) {
    const Group between(heads, b.rank());
    reduce(b, between, between.index_of(root), c, completes);
  }
}

void hierarchical_reduce_scatter(Builder& b, const Hosts& hosts, ChunkRange c, Completes completes) {
  const Place place = find_place(hosts, b.rank());
  const std::vector<Part> parts = parts_by_seat(hosts, c);
  direct_reduce_scatter(b, inside(hosts, place, b.rank()), parts, Completes::kNo);
  ring_reduce_scatter(b, across(hosts, place.seat, b.rank()), one_part_each(parts[place.seat]), completes);
}

void hierarchical_all_gather(Builder& b, const Hosts& hosts, ChunkRange c) {
  const Place place = find_place(hosts, b.rank());
  const std::vector<Part> parts = parts_by_seat(hosts, c);
  ring_all_gather(b, across(hosts, place.seat, b.rank()), one_part_each(parts[place.seat]));
  direct_all_gather(b, inside(hosts, place, b.rank()), parts);
}

}  // namespace tutti::internal::algorithms
