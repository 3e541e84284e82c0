#include "topology/graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>

namespace tutti::internal::topology {
namespace {

constexpr std::array<const char*, kNodeKinds> kNames = {"network", "host", "package", "numa", "pci", "gpu", "port"};

Status bad(const Graph& graph, std::size_t node, const std::string& why) {
  return Status::invalid_argument(
      fmt::format("{} \"{}\": {}", name_of(graph.nodes[node].kind), graph.path(static_cast<std::int32_t>(node)), why));
}

bool is_speed(const Speed& speed) {
  return std::isfinite(speed.gbytes_per_second) && speed.gbytes_per_second >= 0 && std::isfinite(speed.latency_us) &&
         speed.latency_us >= 0;
}

bool is_network(const Graph& graph, std::int32_t node) {
  return node >= 0 && static_cast<std::size_t>(node) < graph.nodes.size() &&
         graph.nodes[static_cast<std::size_t>(node)].kind == NodeKind::kNetwork;
}

// REQUIRES: the parents of all earlier nodes are valid.
Status check_node(const Graph& graph, std::size_t number) {
  const Node& node = graph.nodes[number];
  if (node.parent >= static_cast<std::int32_t>(number))
    return Status::invalid_argument("a node's parent comes after the node");
  if (number > 0 && node.parent < 0) return Status::invalid_argument("two nodes have no parent");
  if (number == 0 && node.parent != -1) return Status::invalid_argument("the first node has a parent");
  if (node.name.empty() || node.name.find('/') != std::string::npos) {
    return bad(graph, number, "a name must not be empty or contain \"/\"");
  }
  if (!is_speed(node.up) || !is_speed(node.out))
    return bad(graph, number, "a rate or a latency is not a number from 0 on");
  const bool outside = node.parent < 0 || is_network(graph, node.parent);
  const bool is_outer = node.kind == NodeKind::kNetwork || node.kind == NodeKind::kHost;
  if (is_outer != outside)
    return bad(graph, number, "a network or host must be in a network, every other node in a host");
  if (node.kind != NodeKind::kPort && node.leads_to >= 0)
    return bad(graph, number, "only a port can lead to a network");
  return {};
}

Status check_link(const Graph& graph, const CrossLink& link) {
  const auto refused = [&](const char* why) {
    return Status::invalid_argument(fmt::format("link of kind \"{}\": {}", link.kind, why));
  };
  if (link.nodes.size() < 2) return refused("it joins fewer than two nodes");
  if (!is_speed(link.speed)) return refused("its rate or latency is not a number from 0 on");
  std::unordered_set<std::int32_t> seen;
  for (const std::int32_t node : link.nodes) {
    if (node < 0 || static_cast<std::size_t>(node) >= graph.nodes.size())
      return refused("it joins a node that does not exist");
    if (!seen.insert(node).second) return refused("it joins a node with itself");
    if (graph.host_of(node) != graph.host_of(link.nodes.front())) return refused("it joins parts of different hosts");
  }
  return {};
}

}  // namespace

const char* name_of(NodeKind kind) {
  return kNames[static_cast<std::size_t>(kind)];
}

Status Graph::check() const {
  if (nodes.empty()) return Status::invalid_argument("there are no nodes");
  std::unordered_set<std::string> names;  // of children, with their parent's number
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (Status s = check_node(*this, i); !s.is_ok()) return s;
    if (!names.insert(fmt::format("{}/{}", nodes[i].parent, nodes[i].name)).second) {
      return bad(*this, i, "another node of its parent has the same name");
    }
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].leads_to >= 0 && !is_network(*this, nodes[i].leads_to))
      return bad(*this, i, "leads_to does not name a network");
  }
  for (const CrossLink& link : links) {
    if (Status s = check_link(*this, link); !s.is_ok()) return s;
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank] < 0 || static_cast<std::size_t>(ranks[rank]) >= nodes.size() || host_of(ranks[rank]) < 0) {
      return Status::invalid_argument(fmt::format("rank {} is not in a host", rank));
    }
  }
  return {};
}

std::int32_t Graph::host_of(std::int32_t node) const {
  while (node >= 0 && nodes[static_cast<std::size_t>(node)].kind != NodeKind::kHost) {
    node = nodes[static_cast<std::size_t>(node)].parent;
  }
  return node;
}

std::vector<std::int32_t> Graph::hosts() const {
  std::vector<std::int32_t> all;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == NodeKind::kHost) all.push_back(static_cast<std::int32_t>(i));
  }
  return all;
}

std::vector<std::int32_t> Graph::children(std::int32_t node) const {
  std::vector<std::int32_t> all;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].parent == node) all.push_back(static_cast<std::int32_t>(i));
  }
  return all;
}

std::string Graph::path(std::int32_t node) const {
  std::string text;
  for (; node > 0; node = nodes[static_cast<std::size_t>(node)].parent) {
    const std::string& name = nodes[static_cast<std::size_t>(node)].name;
    text = text.empty() ? name : name + "/" + text;
  }
  return text.empty() ? nodes.front().name : text;
}

std::int32_t Graph::find(const std::string& path) const {
  if (nodes.empty()) return -1;
  if (path == nodes.front().name) return 0;
  std::int32_t at = 0;
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t to = std::min(path.find('/', from), path.size());
    const std::string_view name = std::string_view(path).substr(from, to - from);
    std::size_t child = static_cast<std::size_t>(at) + 1;
    while (child < nodes.size() && (nodes[child].parent != at || nodes[child].name != name)) ++child;
    if (child == nodes.size()) return -1;
    at = static_cast<std::int32_t>(child);
    from = to + 1;
  }
  return at;
}

}  // namespace tutti::internal::topology
