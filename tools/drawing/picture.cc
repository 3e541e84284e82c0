#include "picture.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/config.h"

namespace tutti::internal::tools {
namespace {

using topology::CrossLink;
using topology::Graph;
using topology::Node;
using topology::NodeKind;

// Of more alike neighbours than this the first one stands for all.
constexpr std::size_t kMostAlike = 8;
constexpr std::size_t kMostFlows = 64;

struct Tree {
  explicit Tree(const Graph& graph) : below(graph.nodes.size()), ranks(graph.nodes.size()) {
    for (std::size_t i = 1; i < graph.nodes.size(); ++i) {
      below[static_cast<std::size_t>(graph.nodes[i].parent)].push_back(static_cast<std::int32_t>(i));
    }
    for (std::size_t r = 0; r < graph.ranks.size(); ++r) {
      ranks[static_cast<std::size_t>(graph.ranks[r])].push_back(static_cast<int>(r));
    }
  }
  std::vector<std::vector<std::int32_t>> below;
  std::vector<std::vector<int>> ranks;
};

// The known facts of a node, except its name.
std::vector<std::string> facts_of(const Node& node) {
  std::vector<std::string> facts;
  if (!node.about.empty()) facts.push_back(node.about);
  if (!node.processors.empty()) facts.push_back("processors " + node.processors);
  if (node.memory_bytes > 0) facts.push_back(text_of_bytes(static_cast<double>(node.memory_bytes)));
  if (!node.pci.empty()) facts.push_back(node.pci);
  if (const std::string up = text_of(node.up); !up.empty()) {
    facts.push_back(node.kind == NodeKind::kNetwork || node.kind == NodeKind::kHost ? up + " up" : "PCIe " + up);
  }
  if (const std::string out = text_of(node.out); !out.empty()) facts.push_back(out);
  return facts;
}

std::string joined(const std::vector<std::string>& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += fmt::format("{}{}", text.empty() ? "" : separator, word);
  return text;
}

// ---- Text ------------------------------------------------------------------------------------------

class TextTree {
 public:
  explicit TextTree(const Graph& graph) : graph_(graph), tree_(graph), shapes_(graph.nodes.size()) {
    for (std::size_t i = graph.nodes.size(); i-- > 0;) shapes_[i] = shape_of(static_cast<std::int32_t>(i));
  }

  std::string run() {
    shown_.resize(graph_.nodes.size());
    add(0, "", "");
    return std::move(text_);
  }
  // By node.
  [[nodiscard]] const std::vector<bool>& shown() const { return shown_; }

 private:
  [[nodiscard]] const Node& node(std::int32_t n) const { return graph_.nodes[static_cast<std::size_t>(n)]; }
  [[nodiscard]] const std::vector<std::int32_t>& below(std::int32_t n) const {
    return tree_.below[static_cast<std::size_t>(n)];
  }

  // The same number for the same contents, names of the topmost and numbers of ranks aside.
  int shape_of(std::int32_t n) {
    std::string key = fmt::format("{}|{}|{}", static_cast<int>(node(n).kind), joined(facts_of(node(n)), ","),
                                  tree_.ranks[static_cast<std::size_t>(n)].size());
    for (const std::int32_t child : below(n)) key += fmt::format("|{}", shapes_[static_cast<std::size_t>(child)]);
    return known_.emplace(std::move(key), static_cast<int>(known_.size())).first->second;
  }

  void add(std::int32_t n, const std::string& lead, const std::string& lead_below) {
    shown_[static_cast<std::size_t>(n)] = true;
    const std::string facts = joined(facts_of(node(n)), ", ");
    const auto& ranks = tree_.ranks[static_cast<std::size_t>(n)];
    text_ += fmt::format("{}{}{}{}", lead, node(n).name, facts.empty() ? "" : "  ", facts);
    if (!ranks.empty()) text_ += fmt::format("  [rank{} {}]", ranks.size() == 1 ? "" : "s", text_of_ranks(ranks));
    text_ += '\n';
    const auto& children = below(n);
    for (std::size_t i = 0; i < children.size();) {
      std::size_t end = i + 1;
      const auto shape = [&](std::size_t k) { return shapes_[static_cast<std::size_t>(children[k])]; };
      while (end < children.size() && shape(end) == shape(i)) ++end;
      const bool fold = end - i > kMostAlike;
      for (std::size_t k = i; k < (fold ? i + 1 : end); ++k) {
        const bool last = k + 1 == children.size();
        add(children[k], fmt::format("{}{}", lead_below, last ? "└─ " : "├─ "),
            fmt::format("{}{}", lead_below, last ? "   " : "│  "));
      }
      if (fold) {
        text_ += fmt::format("{}{}{} to {}: {} more like it\n", lead_below, end == children.size() ? "└─ " : "├─ ",
                             node(children[i + 1]).name, node(children[end - 1]).name, end - i - 1);
      }
      i = end;
    }
  }

  const Graph& graph_;
  Tree tree_;
  std::map<std::string, int> known_;
  std::vector<int> shapes_;
  std::vector<bool> shown_;
  std::string text_;
};

// Of the nodes that are shown.
std::string links_text(const Graph& graph, const std::vector<bool>& shown) {
  constexpr std::size_t kMost = 48;
  std::string text;
  std::size_t lines = 0;
  for (const CrossLink& link : graph.links) {
    const bool all = std::all_of(link.nodes.begin(), link.nodes.end(),
                                 [&](std::int32_t n) { return shown[static_cast<std::size_t>(n)]; });
    if (!all || lines == kMost) continue;
    ++lines;
    std::vector<std::string> ends;
    for (const std::int32_t end : link.nodes) ends.push_back(graph.path(end));
    const std::string speed = text_of(link.speed);
    text += fmt::format("  {}{}: {}{}\n", link.kind, link.nodes.size() > 2 ? " joins" : "",
                        joined(ends, link.nodes.size() > 2 ? ", " : " - "),
                        speed.empty() ? "" : fmt::format(" ({}{})", speed, link.nodes.size() > 2 ? " each" : ""));
  }
  if (graph.links.size() > lines) text += fmt::format("  and {} more\n", graph.links.size() - lines);
  return text;
}

// One line for each rank, as long as that can be read.
std::string flows_text(const Overlay& overlay) {
  std::map<int, std::vector<std::string>> by_rank;
  for (const Flow& flow : overlay.flows) {
    by_rank[flow.from].push_back(fmt::format("{} ({})", flow.to, text_of_bytes(flow.bytes)));
  }
  std::string text = fmt::format("{}\n", overlay.title);
  std::size_t lines = 0;
  for (const auto& [rank, to] : by_rank) {
    if (lines++ == kMostFlows) {
      text += fmt::format("  and {} more ranks\n", by_rank.size() - kMostFlows);
      break;
    }
    text += fmt::format("  rank {} sends to {}\n", rank, joined(to, ", "));
  }
  return text;
}

// ---- Graphviz --------------------------------------------------------------------------------------

std::string quoted(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '"' || c == '\\') safe += '\\';
    safe += c;
  }
  return fmt::format("\"{}\"", safe);
}

class Dot {
 public:
  Dot(const Graph& graph, const Overlay& overlay) : graph_(graph), tree_(graph), overlay_(overlay) {}

  std::string run() {
    text_ = "digraph topology {\n  rankdir=TB; node [shape=box, fontname=\"sans-serif\"]; edge [dir=none];\n";
    if (!overlay_.title.empty()) text_ += fmt::format("  label={}; labelloc=t;\n", quoted(overlay_.title));
    add(0, "  ");
    for (const CrossLink& link : graph_.links) add_link(link);
    for (const Flow& flow : overlay_.flows) {
      text_ += fmt::format("  r{} -> r{} [dir=forward, color=\"#c0392b\", constraint=false, label={}];\n", flow.from,
                           flow.to, quoted(text_of_bytes(flow.bytes)));
    }
    text_ += "}\n";
    return std::move(text_);
  }

 private:
  void add(std::int32_t n, const std::string& indent) {
    const Node& node = graph_.nodes[static_cast<std::size_t>(n)];
    std::vector<std::string> lines = facts_of(node);
    lines.insert(lines.begin(), node.name);
    const std::string label = quoted(joined(lines, "\\n"));
    const auto& below = tree_.below[static_cast<std::size_t>(n)];
    const auto& ranks = tree_.ranks[static_cast<std::size_t>(n)];
    const bool cluster = node.kind == NodeKind::kHost;
    if (cluster) text_ += fmt::format("{}subgraph cluster{} {{\n", indent, n);
    const std::string inner = fmt::format("{}{}", indent, cluster ? "  " : "");
    // joined() has escaped the line breaks; a line break in the label has one backslash.
    std::string broken = label;
    for (std::size_t at = 0; (at = broken.find("\\\\n", at)) != std::string::npos;) broken.erase(at, 1);
    text_ += fmt::format("{}n{} [label={}];\n", inner, n, broken);
    for (const int rank : ranks) {
      text_ +=
          fmt::format("{}r{} [label=\"rank {}\", shape=circle, style=filled, fillcolor=\"#aed6f1\"];\n{}n{} -> r{};\n",
                      inner, rank, rank, inner, n, rank);
    }
    for (const std::int32_t child : below) {
      add(child, inner);
      const Node& one = graph_.nodes[static_cast<std::size_t>(child)];
      text_ += fmt::format("{}n{} -> n{} [label={}];\n", inner, n, child, quoted(text_of(one.up)));
      if (one.leads_to >= 0) {
        text_ += fmt::format("{}n{} -> n{} [style=bold, constraint=false, label={}];\n", inner, one.leads_to, child,
                             quoted(text_of(one.out)));
      }
    }
    if (cluster) text_ += fmt::format("{}}}\n", indent);
  }

  void add_link(const CrossLink& link) {
    const std::string label = quoted(joined({link.kind, text_of(link.speed)}, " "));
    if (link.nodes.size() == 2) {
      text_ += fmt::format("  n{} -> n{} [color=\"#1e8449\", penwidth=2, constraint=false, label={}];\n", link.nodes[0],
                           link.nodes[1], label);
      return;
    }
    text_ += fmt::format("  x{} [label={}, shape=diamond, color=\"#1e8449\"];\n", crossbars_, label);
    for (const std::int32_t end : link.nodes) {
      text_ += fmt::format("  x{} -> n{} [color=\"#1e8449\", penwidth=2];\n", crossbars_, end);
    }
    ++crossbars_;
  }

  const Graph& graph_;
  Tree tree_;
  const Overlay& overlay_;
  std::string text_;
  int crossbars_ = 0;
};

}  // namespace

std::string text_of(const topology::Speed& speed) {
  std::string text;
  if (speed.gbytes_per_second > 0) text = fmt::format("{:.3g} GB/s", speed.gbytes_per_second);
  if (speed.gbytes_per_second >= 1000) text = fmt::format("{:.0f} GB/s", speed.gbytes_per_second);
  if (speed.latency_us <= 0) return text;
  const std::string latency = speed.latency_us >= 1000 ? fmt::format("{:g} ms", speed.latency_us / 1000)
                                                       : fmt::format("{:g} us", speed.latency_us);
  return text.empty() ? latency : text + ", " + latency;
}

std::string text_of_bytes(double bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

std::string text_of_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::size_t first = i;
    while (i + 1 < ranks.size() && ranks[i + 1] == ranks[i] + 1) ++i;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[first]);
    if (i > first) text += fmt::format("-{}", ranks[i]);
  }
  return text;
}

std::string to_tree(const Graph& graph, const Overlay& overlay) {
  TextTree tree(graph);
  std::string text = tree.run();
  if (!graph.links.empty()) text += fmt::format("\nlinks\n{}", links_text(graph, tree.shown()));
  if (!overlay.title.empty()) text += fmt::format("\n{}", flows_text(overlay));
  return text;
}

std::string to_dot(const Graph& graph, const Overlay& overlay) {
  return Dot(graph, overlay).run();
}

}  // namespace tutti::internal::tools
