#include "topology/routes.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>

namespace tutti::internal::topology {
namespace {

constexpr int kUp = 0;
constexpr int kDown = 1;
constexpr int kOut = 2;
constexpr int kIn = 3;
constexpr int kMemory = 4;
constexpr const char* kNamesOfWays[] = {"up", "down", "out", "in", "memory"};
constexpr double kUsPerByteOfOne = 1e-3;  // at 1 GB/s

double us_per_byte_of(const Speed& speed) {
  return speed.gbytes_per_second > 0 ? kUsPerByteOfOne / speed.gbytes_per_second : 0;
}

}  // namespace

Routes::Routes(const Graph& graph, const MachineCosts& costs, Sharing sharing, const Slowed& slowed, bool one_host)
    : graph_(graph), costs_(costs), one_host_(one_host) {
  us_per_byte_.resize(kWays * graph.nodes.size());
  depths_.resize(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& one = graph.nodes[i];
    const auto n = static_cast<std::int32_t>(i);
    const auto slow = slowed.nodes.find(n);
    const double factor = slow == slowed.nodes.end() ? 1 : 1 / slow->second;
    us_per_byte_[resource_of(n, kUp)] = us_per_byte_[resource_of(n, kDown)] = us_per_byte_of(one.up) * factor;
    us_per_byte_[resource_of(n, kOut)] = us_per_byte_[resource_of(n, kIn)] = us_per_byte_of(one.out) * factor;
    depths_[i] = one.parent < 0 ? 0 : depths_[static_cast<std::size_t>(one.parent)] + 1;
  }
  add_links();
  add_ranks(sharing, slowed);
  add_memory();
  if (!hosts_.empty()) {
    link_resources_of_host_ =
        static_cast<std::uint32_t>((us_per_byte_.size() - kWays * graph.nodes.size()) / hosts_.size());
  }
  choose_ports();
}

void Routes::add_links() {
  for (std::uint32_t i = 0; i < graph_.links.size(); ++i) {
    const CrossLink& link = graph_.links[i];
    link_first_.push_back(static_cast<std::uint32_t>(us_per_byte_.size()));
    us_per_byte_.insert(us_per_byte_.end(), 2 * link.nodes.size(), us_per_byte_of(link.speed));
    for (std::uint32_t p = 0; p < link.nodes.size(); ++p) link_ends_[link.nodes[p]].push_back({i, p});
  }
}

void Routes::add_ranks(Sharing sharing, const Slowed& slowed) {
  algorithms::Hosts::Lists lists;
  std::unordered_map<std::int32_t, std::size_t> numbers;  // of hosts
  for (std::size_t rank = 0; rank < graph_.ranks.size(); ++rank) {
    const std::int32_t host = graph_.host_of(graph_.ranks[rank]);
    rank_hosts_.push_back(host);
    const auto [at, is_new] = numbers.try_emplace(host, lists.size());
    if (is_new) lists.emplace_back();
    lists[at->second].push_back(static_cast<int>(rank));
  }
  hosts_ = std::move(lists);
  processors_.resize(graph_.ranks.size());
  std::vector<int> all;
  for (const auto& host : hosts_) {
    if (!sharing.one_machine) share_processors({host.begin(), host.end()}, sharing.cores);
    all.insert(all.end(), host.begin(), host.end());
  }
  if (sharing.one_machine) share_processors(all, sharing.cores);
  slowness_.assign(graph_.ranks.size(), 1);
  for (const auto& [rank, factor] : slowed.ranks) slowness_[static_cast<std::size_t>(rank)] = 1 / factor;
}

// The ranks of one machine. If there are enough processors, each rank keeps its own.
void Routes::share_processors(const std::vector<int>& ranks, int cores) {
  const auto first = static_cast<std::uint32_t>(processor_count_);
  const bool enough = cores == 0 || ranks.size() <= static_cast<std::size_t>(cores);
  const std::size_t count = enough ? ranks.size() : static_cast<std::size_t>(cores);
  processor_count_ += count;
  const double others = enough ? 0 : static_cast<double>(ranks.size()) / cores - 1;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    schedule::Processors& those = processors_[static_cast<std::size_t>(ranks[i])];
    those.first = enough ? first + static_cast<std::uint32_t>(i) : first;
    those.count = enough ? 1 : static_cast<std::uint32_t>(cores);
    those.turn_us = others * costs_.turn_us;
  }
}

void Routes::add_memory() {
  std::unordered_map<std::int32_t, int> nodes;  // of NUMA, by host
  for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
    if (graph_.nodes[n].kind == NodeKind::kNumaNode) ++nodes[graph_.host_of(static_cast<std::int32_t>(n))];
  }
  for (std::size_t rank = 0; rank < graph_.ranks.size(); ++rank) {
    const std::int32_t at = memory_of(rank);
    const double share = node(at).kind == NodeKind::kNumaNode ? nodes[rank_hosts_[rank]] : 1;
    us_per_byte_[resource_of(at, kMemory)] = share * costs_.memory_us_per_byte;
    rank_memory_.push_back(at);
  }
}

std::int32_t Routes::memory_of(std::size_t rank) const {
  std::int32_t at = graph_.ranks[rank];
  while (node(at).kind != NodeKind::kNumaNode && node(at).kind != NodeKind::kHost) at = node(at).parent;
  return at;
}

void Routes::choose_ports() {
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> ports;  // by host
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (graph_.nodes[i].kind != NodeKind::kPort) continue;
    const auto n = static_cast<std::int32_t>(i);
    ports[graph_.host_of(n)].push_back(n);
  }
  rank_ports_.assign(graph_.ranks.size(), -1);
  for (const auto& host : hosts_) {
    const auto known = ports.find(rank_hosts_[static_cast<std::size_t>(host.front())]);
    if (known == ports.end()) continue;
    std::unordered_map<std::int32_t, std::size_t> there;  // ranks at each place
    for (const int r : host) {
      const auto rank = static_cast<std::size_t>(r);
      rank_ports_[rank] = port_for(rank, there[graph_.ranks[rank]]++, known->second);
    }
  }
}

// One of the ports nearest to the rank's node; `turn` alternates between equally near ones.
std::int32_t Routes::port_for(std::size_t rank, std::size_t turn, const std::vector<std::int32_t>& ports) const {
  std::vector<std::int32_t> nearest;
  int most = -1;
  for (const std::int32_t port : ports) {
    const int depth = depth_in_common(graph_.ranks[rank], port);
    if (depth > most) nearest.clear();
    most = std::max(most, depth);
    if (depth == most) nearest.push_back(port);
  }
  return nearest[turn % nearest.size()];
}

int Routes::depth_in_common(std::int32_t a, std::int32_t b) const {
  return depths_[static_cast<std::size_t>(meeting_of(a, b))];
}

std::int32_t Routes::meeting_of(std::int32_t a, std::int32_t b) const {
  while (a != b) {
    if (depths_[static_cast<std::size_t>(a)] >= depths_[static_cast<std::size_t>(b)]) {
      a = node(a).parent;
    } else {
      b = node(b).parent;
    }
  }
  return a;
}

// A resource of unlimited rate is omitted.
void Routes::use(std::uint32_t resource, double latency_us, schedule::Route& route) const {
  route.latency_us += latency_us;
  if (us_per_byte_[resource] > 0) route.resources.push_back(resource);
}

void Routes::climb(std::int32_t from, std::int32_t above, bool up, schedule::Route& route) const {
  for (; from != above; from = node(from).parent) {
    use(resource_of(from, up ? kUp : kDown), node(from).up.latency_us, route);
  }
}

void Routes::cross(const LinkEnd& from, const LinkEnd& to, schedule::Route& route) const {
  const CrossLink& link = graph_.links[from.link];
  use(link_first_[from.link] + 2 * from.position, link.speed.latency_us, route);
  // A cable is one resource in each direction, a crossbar has one for each port.
  if (link.nodes.size() > 2) use(link_first_[from.link] + 2 * to.position + 1, 0, route);
}

// Uses a link between a node on the way up and one on the way down, the lowest nodes first.
bool Routes::go_by_link(std::int32_t from, std::int32_t to, std::int32_t above, schedule::Route& route) const {
  for (std::int32_t a = from; a != above; a = node(a).parent) {
    const auto ends = link_ends_.find(a);
    if (ends == link_ends_.end()) continue;
    for (std::int32_t b = to; b != above; b = node(b).parent) {
      for (const LinkEnd& end : ends->second) {
        const auto& nodes = graph_.links[end.link].nodes;
        const auto at = std::find(nodes.begin(), nodes.end(), b);
        if (at == nodes.end()) continue;
        climb(from, a, true, route);
        cross(end, {end.link, static_cast<std::uint32_t>(at - nodes.begin())}, route);
        climb(to, b, false, route);
        return true;
      }
    }
  }
  return false;
}

// Uses several links between children of one node, as few as possible.
bool Routes::go_among(std::int32_t from, std::int32_t to, schedule::Route& route) const {
  struct Hop {
    std::int32_t before;
    LinkEnd out, in;
  };
  std::unordered_map<std::int32_t, Hop> reached{{from, {-1, {}, {}}}};
  std::deque<std::int32_t> next{from};
  while (!next.empty() && reached.find(to) == reached.end()) {
    const std::int32_t at = next.front();
    next.pop_front();
    const auto ends = link_ends_.find(at);
    if (ends == link_ends_.end()) continue;
    for (const LinkEnd& end : ends->second) {
      const auto& nodes = graph_.links[end.link].nodes;
      for (std::uint32_t p = 0; p < nodes.size(); ++p) {
        if (node(nodes[p]).parent != node(from).parent) continue;
        if (reached.try_emplace(nodes[p], Hop{at, end, {end.link, p}}).second) next.push_back(nodes[p]);
      }
    }
  }
  if (reached.find(to) == reached.end()) return false;
  std::vector<const Hop*> hops;
  for (std::int32_t at = to; at != from; at = reached.at(at).before) hops.push_back(&reached.at(at));
  for (auto hop = hops.rbegin(); hop != hops.rend(); ++hop) cross((*hop)->out, (*hop)->in, route);
  return true;
}

void Routes::go(std::int32_t from, std::int32_t to, schedule::Route& route) const {
  const std::int32_t above = meeting_of(from, to);
  if (from == to || (!link_ends_.empty() && go_by_link(from, to, above, route))) return;
  // The two children on the route.
  std::int32_t a = from;
  std::int32_t b = to;
  while (a != above && node(a).parent != above) a = node(a).parent;
  while (b != above && node(b).parent != above) b = node(b).parent;
  if (a != above && b != above && link_ends_.find(a) != link_ends_.end()) {
    const std::size_t resources = route.resources.size();
    const double latency_us = route.latency_us;
    climb(from, a, true, route);
    if (go_among(a, b, route)) return climb(to, b, false, route);
    route.resources.resize(resources);
    route.latency_us = latency_us;
  }
  climb(from, above, true, route);
  climb(to, above, false, route);
}

void Routes::find_route(int from, int to, double call_bytes, schedule::Route& route) const {
  const auto f = static_cast<std::size_t>(from);
  const auto t = static_cast<std::size_t>(to);
  const bool within = rank_hosts_[f] == rank_hosts_[t];
  const bool devices = within && is_gpu(from) && is_gpu(to);
  const MessageCosts& costs = devices ? costs_.between_devices : within ? costs_.within_host : costs_.between_hosts;
  route.resources.clear();
  route.latency_us = costs.latency_us;
  route.message_us = costs.message_us;
  route.send_us_per_byte = costs.send_us_per_byte.at(call_bytes);
  route.receive_us_per_byte = costs.receive_us_per_byte.at(call_bytes);
  route.piece_bytes = costs.piece_bytes;
  route.buffer_bytes = costs.buffer_bytes;
  if (within) {
    if (!devices) use(resource_of(rank_memory_[t], kMemory), 0, route);
    return go(graph_.ranks[f], graph_.ranks[t], route);
  }
  const auto outside = [&](std::size_t rank) {
    const std::int32_t port = rank_ports_[rank];
    if (port >= 0 && node(port).leads_to >= 0) return node(port).leads_to;
    return node(rank_hosts_[rank]).parent;
  };
  const auto leave = [&](std::size_t rank, bool out) {
    const std::int32_t port = rank_ports_[rank];
    if (port < 0) return climb(graph_.ranks[rank], outside(rank), out, route);
    if (out) go(graph_.ranks[rank], port, route);
    use(resource_of(port, out ? kOut : kIn), node(port).out.latency_us, route);
    if (!out) go(port, graph_.ranks[rank], route);
  };
  leave(f, true);
  go(outside(f), outside(t), route);
  leave(t, false);
  if (!one_host_) return;
  for (std::uint32_t& resource : route.resources) resource = of_first_host(resource);
}

// REQUIRES: hosts are equal, and their nodes and links have the same order.
std::uint32_t Routes::of_first_host(std::uint32_t resource) const {
  const std::uint32_t of_nodes = kWays * static_cast<std::uint32_t>(graph_.nodes.size());
  if (resource >= of_nodes) return of_nodes + (resource - of_nodes) % link_resources_of_host_;
  const std::int32_t host = graph_.host_of(static_cast<std::int32_t>(resource / kWays));
  return host < 0 ? resource : resource - kWays * static_cast<std::uint32_t>(host - rank_hosts_.front());
}

std::string Routes::describe(std::uint32_t resource) const {
  if (resource < kWays * graph_.nodes.size()) {
    return fmt::format("{} {}", graph_.path(static_cast<std::int32_t>(resource / kWays)),
                       kNamesOfWays[resource % kWays]);
  }
  const auto link = static_cast<std::size_t>(std::upper_bound(link_first_.begin(), link_first_.end(), resource) -
                                             link_first_.begin() - 1);
  const CrossLink& of = graph_.links[link];
  const std::uint32_t end = resource - link_first_[link];
  const std::string at = graph_.path(of.nodes[end / 2]);
  if (of.nodes.size() > 2) return fmt::format("{} {} {}", of.kind, end % 2 == 0 ? "from" : "to", at);
  return fmt::format("{} {} to {}", of.kind, at, graph_.path(of.nodes[1 - end / 2]));
}

namespace {

// Whether the nodes of each host equal those of the first one, shifted by `size` nodes for each host.
bool nodes_alike(const Graph& graph, std::int32_t first, std::int32_t size) {
  for (auto n = static_cast<std::size_t>(first + size); n < graph.nodes.size(); ++n) {
    const auto offset = (static_cast<std::int32_t>(n) - first) % size;
    Node expected = graph.nodes[static_cast<std::size_t>(first + offset)];
    const Node& found = graph.nodes[n];
    if (expected.kind == NodeKind::kHost) {
      expected.name = found.name;
    } else {
      expected.parent += static_cast<std::int32_t>(n) - first - offset;
    }
    if (!(expected == found)) return false;
  }
  return true;
}

// The same for links, which are in the order of hosts.
bool links_alike(const Graph& graph, std::int32_t first, std::int32_t size, std::size_t hosts) {
  if (graph.links.size() % hosts != 0) return false;
  const std::size_t of_host = graph.links.size() / hosts;
  for (std::size_t i = 0; i < graph.links.size(); ++i) {
    CrossLink expected = graph.links[i % of_host];
    for (std::int32_t& node : expected.nodes) {
      if (node < first || node >= first + size) return false;
      node += static_cast<std::int32_t>(i / of_host) * size;
    }
    if (!(expected == graph.links[i])) return false;
  }
  return true;
}

}  // namespace

bool hosts_alike(const Graph& graph) {
  const std::vector<std::int32_t> hosts = graph.hosts();
  if (hosts.size() < 2 || graph.ranks.empty() || graph.ranks.size() % hosts.size() != 0) return false;
  const std::int32_t first = hosts[0];
  const std::int32_t size = hosts[1] - first;
  const auto all = static_cast<std::size_t>(size) * hosts.size() + static_cast<std::size_t>(first);
  if (first != 1 || all != graph.nodes.size()) return false;
  if (!nodes_alike(graph, first, size) || !links_alike(graph, first, size, hosts.size())) return false;
  const std::size_t per_host = graph.ranks.size() / hosts.size();
  for (std::size_t rank = 0; rank < graph.ranks.size(); ++rank) {
    const std::int32_t of_first = graph.ranks[rank % per_host];
    if (of_first < first || of_first >= first + size) return false;
    if (graph.ranks[rank] != of_first + static_cast<std::int32_t>(rank / per_host) * size) return false;
  }
  return true;
}

}  // namespace tutti::internal::topology
