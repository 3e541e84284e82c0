// The drawing: boxes in boxes, as the nodes are in each other; ranks as discs; links and flows as lines above them.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "markup.h"
#include "picture.h"

namespace tutti::internal::tools {
namespace {

using topology::CrossLink;
using topology::Graph;
using topology::Node;
using topology::NodeKind;

constexpr std::size_t kMostNodes = 3000;
constexpr double kPad = 10;
constexpr double kLine = 15;
constexpr double kLetter = 6.4;  // a letter of 11 points, about
constexpr double kDisc = 24;
constexpr std::size_t kFlowsAtFullWidth = 48;  // more are drawn thinner
constexpr std::size_t kDiscsInRow = 8;
constexpr double kStrip = 26;  // of a crossbar

constexpr const char* kFills[topology::kNodeKinds] = {"#eef2f7", "#ffffff", "#f4f6e8", "#e8f1ec",
                                                      "#f3edf7", "#d9ead3", "#fde7c8"};
constexpr const char* kLinkColours[] = {"#1e8449", "#6c3483", "#b9770e", "#1f618d"};

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  std::vector<std::string> lines;
};

class Drawing {
 public:
  Drawing(const Graph& graph, const Overlay& overlay)
      : graph_(graph),
        overlay_(overlay),
        boxes_(graph.nodes.size()),
        below_(graph.nodes.size()),
        ranks_(graph.nodes.size()),
        crossbars_(graph.nodes.size()),
        disc_step_(kDisc + (overlay.flows.empty() ? 4 : 14)),
        thin_(std::clamp(std::sqrt(static_cast<double>(kFlowsAtFullWidth) / static_cast<double>(overlay.flows.size())),
                         0.35, 1.0)) {
    for (std::size_t i = 1; i < graph.nodes.size(); ++i) {
      below_[static_cast<std::size_t>(graph.nodes[i].parent)].push_back(i);
    }
    for (std::size_t r = 0; r < graph.ranks.size(); ++r) ranks_[static_cast<std::size_t>(graph.ranks[r])].push_back(r);
    for (const CrossLink& link : graph.links) {
      if (link.nodes.size() > 2) {
        crossbars_[above(link)].push_back(&link);
      } else {
        cables_[above(link)].push_back(&link);
      }
    }
    discs_.resize(graph.ranks.size());
  }

  std::string run() {
    measure(0);
    const double head = overlay_.title.empty() ? 0 : 28;
    place(0, kPad, kPad + head);
    const double width =
        std::max(boxes_[0].width + 2 * kPad, kLetter * 1.3 * static_cast<double>(overlay_.title.size()) + 30);
    const double height = boxes_[0].height + 2 * kPad + head;
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n"
        "<defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"{2:.1f}\" "
        "markerHeight=\"{2:.1f}\" "
        "markerUnits=\"userSpaceOnUse\" "
        "orient=\"auto\"><path d=\"M0 0L10 5L0 10z\" fill=\"#c0392b\"/></marker></defs>\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        width, height, 8 * std::max(thin_, 0.6));
    if (head > 0) {
      text_ += fmt::format("<text x=\"{}\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{}</text>\n", kPad,
                           escaped(overlay_.title));
    }
    draw(0);
    draw_links();
    draw_flows();
    draw_ranks();
    // Above the lines, on a light edge. The edge is drawn first: not every program knows paint-order.
    text_ += "<g stroke=\"#ffffff\" stroke-width=\"3\" stroke-opacity=\"0.8\">\n";
    draw_texts();
    text_ += "</g>\n<g>\n";
    draw_texts();
    text_ += "</g>\n";
    return text_ + "</svg>\n";
  }

 private:
  [[nodiscard]] std::size_t above(const CrossLink& link) const {
    std::int32_t meeting = graph_.nodes[static_cast<std::size_t>(link.nodes.front())].parent;
    for (const std::int32_t end : link.nodes) {
      std::int32_t other = graph_.nodes[static_cast<std::size_t>(end)].parent;
      while (other != meeting) {
        std::int32_t& lower = other > meeting ? other : meeting;
        lower = graph_.nodes[static_cast<std::size_t>(lower)].parent;
      }
    }
    return static_cast<std::size_t>(meeting);
  }

  std::vector<std::string> lines_of(const Node& node) const {
    std::vector<std::string> lines{node.name};
    if (!node.about.empty()) lines.push_back(node.about.substr(0, 34));
    if (!node.processors.empty()) lines.push_back("processors " + node.processors.substr(0, 24));
    if (node.memory_bytes > 0) lines.push_back(text_of_bytes(static_cast<double>(node.memory_bytes)));
    if (const std::string out = text_of(node.out); !out.empty()) lines.push_back(out);
    if (const std::string up = text_of(node.up); !up.empty()) lines.push_back("up " + up);
    return lines;
  }

  // Its size: below the text the ranks, then what is in it, in rows of about the width that makes it twice as wide as
  // high.
  void measure(std::size_t n) {
    Box& box = boxes_[n];
    box.lines = lines_of(graph_.nodes[n]);
    double text = 0;
    for (const std::string& line : box.lines) text = std::max(text, kLetter * static_cast<double>(line.size()));
    const auto discs = static_cast<double>(std::min(ranks_[n].size(), kDiscsInRow));
    double width = std::max(text, discs * disc_step_);
    double area = 0;
    double widest = 0;
    for (const std::size_t child : below_[n]) {
      measure(child);
      area += (boxes_[child].width + kPad) * (boxes_[child].height + kPad);
      widest = std::max(widest, boxes_[child].width);
    }
    // The same number in each row except the last.
    double together = 0;
    for (const std::size_t child : below_[n]) together += boxes_[child].width + kPad;
    const double lines = std::max(1.0, std::ceil(together / std::max(widest, std::sqrt(area * 2) + widest / 2)));
    columns_[n] = static_cast<std::size_t>(std::max(1.0, std::ceil(static_cast<double>(below_[n].size()) / lines)));
    double x = 0, row = 0, below = 0;
    for (std::size_t i = 0; i < below_[n].size(); ++i) {
      const std::size_t child = below_[n][i];
      if (i > 0 && i % columns_[n] == 0) {
        below += row + kPad;
        x = row = 0;
      }
      x += boxes_[child].width + kPad;
      row = std::max(row, boxes_[child].height);
      width = std::max(width, x - kPad);
    }
    if (row > 0) below += row + kPad;
    box.width = width + 2 * kPad;
    box.height = kPad + top_of(n) + below + kStrip * static_cast<double>(crossbars_[n].size() + cables_.count(n));
  }
  // Of text and ranks.
  [[nodiscard]] double top_of(std::size_t n) const {
    const double rows = std::ceil(static_cast<double>(ranks_[n].size()) / static_cast<double>(kDiscsInRow));
    return kLine * static_cast<double>(boxes_[n].lines.size()) + 6 + rows * disc_step_;
  }

  void place(std::size_t n, double left, double top) {
    Box& box = boxes_[n];
    box.x = left;
    box.y = top;
    const double first = top + kLine * static_cast<double>(box.lines.size()) + 8;
    for (std::size_t i = 0; i < ranks_[n].size(); ++i) {
      discs_[ranks_[n][i]] = {left + kPad + disc_step_ * static_cast<double>(i % kDiscsInRow) + kDisc / 2,
                              first + disc_step_ * static_cast<double>(i / kDiscsInRow) + kDisc / 2};
    }
    const bool turns = is_ring(n);
    double x = 0, y = top + kPad + top_of(n), row = 0;
    for (std::size_t i = 0; i < below_[n].size(); ++i) {
      const std::size_t child = below_[n][i];
      if (i > 0 && i % columns_[n] == 0) {
        y += row + kPad;
        x = row = 0;
      }
      // Of a ring each second row goes back, so that what is joined is side by side or one above the other.
      const bool back = turns && i / columns_[n] % 2 == 1;
      const double whole = static_cast<double>(columns_[n] - 1) * (boxes_[child].width + kPad);
      place(child, left + kPad + (back ? whole - x : x), y);
      x += boxes_[child].width + kPad;
      row = std::max(row, boxes_[child].height);
    }
  }

  void draw(std::size_t n) {
    const Box& box = boxes_[n];
    text_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"5\" fill=\"{}\" "
        "stroke=\"#7f8c8d\"/>\n",
        box.x, box.y, box.width, box.height, kFills[static_cast<std::size_t>(graph_.nodes[n].kind)]);
    for (const std::size_t child : below_[n]) draw(child);
  }

  void draw_texts() {
    for (std::size_t n = 0; n < boxes_.size(); ++n) draw_text(n);
    for (const auto& [n, cables] : cables_) {
      if (!are_alike(cables)) continue;
      const Box& box = boxes_[n];
      const double strips = kStrip * static_cast<double>(crossbars_[n].size());
      text_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"9\" fill=\"{}\">{} each</text>\n", box.x + kPad,
                           box.y + box.height - strips - 5, colour_of(cables.front()->kind),
                           escaped(label_of(*cables.front())));
    }
  }

  void draw_text(std::size_t n) {
    const Box& box = boxes_[n];
    for (std::size_t i = 0; i < box.lines.size(); ++i) {
      text_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", box.x + kPad,
                           box.y + kLine * static_cast<double>(i + 1),
                           i == 0 ? " font-weight=\"bold\"" : " fill=\"#566573\"", escaped(box.lines[i]));
    }
  }

  static std::string label_of(const CrossLink& link) { return link.kind + " " + text_of(link.speed); }

  // Several, of which one text says what holds for each.
  static bool are_alike(const std::vector<const CrossLink*>& cables) {
    return cables.size() > 1 && std::all_of(cables.begin(), cables.end(), [&](const CrossLink* link) {
             return label_of(*link) == label_of(*cables.front());
           });
  }

  // Whether each of the equal boxes in it is joined to the next, and the last to the first, and to no others.
  [[nodiscard]] bool is_ring(std::size_t n) const {
    const std::vector<std::size_t>& members = below_[n];
    const auto cables = cables_.find(n);
    if (cables == cables_.end() || members.size() < 4 || cables->second.size() != members.size()) return false;
    std::set<std::size_t> joined;  // members that have a link to the next one
    for (const CrossLink* link : cables->second) {
      const auto first = std::find(members.begin(), members.end(), static_cast<std::size_t>(link->nodes[0]));
      const auto second = std::find(members.begin(), members.end(), static_cast<std::size_t>(link->nodes[1]));
      if (first == members.end() || second == members.end()) return false;
      const auto a = static_cast<std::size_t>(first - members.begin());
      const auto b = static_cast<std::size_t>(second - members.begin());
      if ((a + 1) % members.size() == b) joined.insert(a);
      if ((b + 1) % members.size() == a) joined.insert(b);
    }
    const bool equal = std::all_of(members.begin(), members.end(), [&](std::size_t member) {
      return std::abs(boxes_[member].width - boxes_[members.front()].width) < 1;
    });
    return equal && joined.size() == members.size();
  }

  const char* colour_of(const std::string& kind) {
    const auto at = colours_.emplace(kind, colours_.size() % std::size(kLinkColours)).first;
    return kLinkColours[at->second];
  }

  void line(double x1, double y1, double x2, double y2, const char* colour, double width) {
    text_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"{:.1f}\" "
        "stroke-opacity=\"0.75\"/>\n",
        x1, y1, x2, y2, colour, width);
  }

  void draw_links() {
    std::map<std::size_t, double> used;  // of the strip of each node that has crossbars
    for (const CrossLink& link : graph_.links) {
      const char* const colour = colour_of(link.kind);
      const std::string label = label_of(link);
      if (link.nodes.size() == 2) {
        const Box& a = boxes_[static_cast<std::size_t>(link.nodes[0])];
        const Box& b = boxes_[static_cast<std::size_t>(link.nodes[1])];
        const double ax = a.x + a.width / 2, bx = b.x + b.width / 2;
        const bool beside = std::abs(a.y - b.y) < 1;
        const bool stacked = !beside && std::abs(a.x - b.x) < 1;
        const double ay = beside || (stacked && a.y < b.y) ? a.y + a.height : stacked ? a.y : a.y + a.height / 2;
        const double by = beside || (stacked && b.y < a.y) ? b.y + b.height : stacked ? b.y : b.y + b.height / 2;
        const double sag = beside ? 14 : 0;
        text_ += fmt::format(
            "<path d=\"M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.5\" "
            "stroke-opacity=\"0.75\"><title>{}</title></path>\n",
            ax, ay, (ax + bx) / 2, (ay + by) / 2 + 2 * sag, bx, by, colour, escaped(label));
        if (graph_.links.size() <= 32 && !are_alike(cables_[above(link)])) {
          text_ += fmt::format(
              "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"9\" text-anchor=\"middle\" fill=\"{}\">{}</text>\n",
              (ax + bx) / 2, (ay + by) / 2 + sag + 9, colour, escaped(label));
        }
        continue;
      }
      const std::size_t n = above(link);
      const Box& box = boxes_[n];
      const double y = box.y + box.height - kStrip * (++used[n]) + 2;
      text_ += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"18\" rx=\"4\" fill=\"{}\" fill-opacity=\"0.2\" "
          "stroke=\"{}\"/>\n<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\">{} each</text>\n",
          box.x + kPad, y, box.width - 2 * kPad, colour, colour, box.x + 2 * kPad, y + 13, colour, escaped(label));
      for (const std::int32_t end : link.nodes) {
        const Box& e = boxes_[static_cast<std::size_t>(end)];
        line(e.x + e.width / 2, e.y + e.height, e.x + e.width / 2, y, colour, 2);
      }
    }
  }

  void draw_flows() {
    double most = 0;
    for (const Flow& flow : overlay_.flows) most = std::max(most, flow.bytes);
    for (const Flow& flow : overlay_.flows) {
      const auto [ax, ay] = discs_[static_cast<std::size_t>(flow.from)];
      const auto [bx, by] = discs_[static_cast<std::size_t>(flow.to)];
      const double length = std::max(1.0, std::hypot(bx - ax, by - ay));
      const double ux = (bx - ax) / length, uy = (by - ay) / length;
      const double bend = std::min(40.0, 10 + length * 0.12);
      // Both directions bend to their own right.
      const double cx = (ax + bx) / 2 - uy * bend, cy = (ay + by) / 2 + ux * bend;
      const double gap = kDisc / 2 + 1;
      const double tx = bx - cx, ty = by - cy;
      const double t = std::max(1.0, std::hypot(tx, ty));
      text_ += fmt::format(
          "<path d=\"M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}\" fill=\"none\" stroke=\"#c0392b\" "
          "stroke-width=\"{:.1f}\" "
          "stroke-opacity=\"{:.2f}\" marker-end=\"url(#tip)\"><title>rank {} to rank {}: {}</title></path>\n",
          ax, ay, cx, cy, bx - tx / t * gap, by - ty / t * gap, thin_ * (1 + 2 * flow.bytes / std::max(most, 1.0)),
          0.3 + 0.4 * thin_, flow.from, flow.to, text_of_bytes(flow.bytes));
    }
  }

  void draw_ranks() {
    for (std::size_t rank = 0; rank < discs_.size(); ++rank) {
      text_ += fmt::format(
          "<circle cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"{2}\" fill=\"#2e86c1\" stroke=\"#1b4f72\"/>\n<text x=\"{0:.1f}\" "
          "y=\"{3:.1f}\" text-anchor=\"middle\" fill=\"#ffffff\" font-size=\"{4}\">{5}</text>\n",
          discs_[rank].first, discs_[rank].second, kDisc / 2, discs_[rank].second + 4, rank < 1000 ? 11 : 8, rank);
    }
  }

  const Graph& graph_;
  const Overlay& overlay_;
  std::vector<Box> boxes_;
  std::vector<std::vector<std::size_t>> below_;
  std::vector<std::vector<std::size_t>> ranks_;
  std::vector<std::vector<const CrossLink*>> crossbars_;         // by the lowest node above
  std::map<std::size_t, std::vector<const CrossLink*>> cables_;  // links of two ends, likewise
  const double disc_step_;                                       // from a rank to the next, with room for an arrow
  const double thin_;                                            // of arrows: 1, less if the picture has many
  std::map<std::size_t, std::size_t> columns_;
  std::vector<std::pair<double, double>> discs_;  // centres, by rank
  std::map<std::string, std::size_t> colours_;
  std::string text_;
};

}  // namespace

Result<std::string> to_svg(const Graph& graph, const Overlay& overlay) {
  if (graph.nodes.size() + graph.ranks.size() > kMostNodes) {
    return Status::invalid_argument(fmt::format("{} nodes and {} ranks are more than a picture can show ({})",
                                                graph.nodes.size(), graph.ranks.size(), kMostNodes));
  }
  return Drawing(graph, overlay).run();
}

}  // namespace tutti::internal::tools
