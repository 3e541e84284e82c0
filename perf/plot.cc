#include "plot.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

namespace tutti::internal::perf {
namespace {

constexpr double kWidth = 860;
constexpr double kHeight = 480;
constexpr double kLeft = 70;
constexpr double kRight = 190;  // the legend's
constexpr double kTop = 40;
constexpr double kBottom = 60;
constexpr const char* kColours[] = {"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#17becf"};

struct Point {
  double log2_bytes;
  double log10_gbs;
};
using Lines = std::map<std::string, std::vector<Point>>;

void add_point(Lines& lines, const Row& row, const Measurement& measurement, const char* mode) {
  const double gbs = row.busbw_gbs(measurement);
  if (row.bytes() == 0 || gbs <= 0) return;
  const Problem& p = row.problem;
  std::string name = name_of(p.datatype);
  if (reduces(p.collective)) name += std::string(" ") + name_of(p.op);
  if (has_root(p.collective)) name += " root " + std::to_string(p.root);
  lines[name + mode].push_back({std::log2(static_cast<double>(row.bytes())), std::log10(gbs)});
}

// Whole numbers around all points, on both axes.
struct Frame {
  double low_x, high_x, low_y, high_y;

  explicit Frame(const Lines& lines) : low_x(1e9), high_x(-1e9), low_y(1e9), high_y(-1e9) {
    for (const auto& [name, points] : lines) {
      for (const Point& point : points) {
        low_x = std::min(low_x, std::floor(point.log2_bytes));
        high_x = std::max(high_x, std::ceil(point.log2_bytes));
        low_y = std::min(low_y, std::floor(point.log10_gbs));
        high_y = std::max(high_y, std::ceil(point.log10_gbs));
      }
    }
    if (high_x <= low_x) high_x = low_x + 1;
    if (high_y <= low_y) high_y = low_y + 1;
  }
  [[nodiscard]] double x(double value) const {
    return kLeft + (value - low_x) / (high_x - low_x) * (kWidth - kLeft - kRight);
  }
  [[nodiscard]] double y(double value) const {
    return kHeight - kBottom - (value - low_y) / (high_y - low_y) * (kHeight - kTop - kBottom);
  }
};

std::string size_label(int log2_bytes) {
  static const char* const kUnits[] = {"", "K", "M", "G", "T", "P", "E"};
  return std::to_string(1 << log2_bytes % 10) + kUnits[log2_bytes / 10];
}

void draw_line(std::ostream& svg, double x1, double y1, double x2, double y2) {
  svg << "<line x1='" << x1 << "' y1='" << y1 << "' x2='" << x2 << "' y2='" << y2 << "' stroke='#ddd'/>\n";
}

void draw_text(std::ostream& svg, double x, double y, const std::string& anchor, const std::string& text) {
  svg << "<text x='" << x << "' y='" << y << "' text-anchor='" << anchor << "'>" << text << "</text>\n";
}

void draw_axes(std::ostream& svg, const Frame& frame, const std::string& title) {
  const int step = frame.high_x - frame.low_x > 14 ? 2 : 1;
  for (int v = static_cast<int>(frame.low_x); v <= static_cast<int>(frame.high_x); v += step) {
    draw_line(svg, frame.x(v), kTop, frame.x(v), kHeight - kBottom);
    draw_text(svg, frame.x(v), kHeight - kBottom + 18, "middle", size_label(v));
  }
  for (int v = static_cast<int>(frame.low_y); v <= static_cast<int>(frame.high_y); ++v) {
    std::ostringstream label;
    label << std::pow(10.0, v);
    draw_line(svg, kLeft, frame.y(v), kWidth - kRight, frame.y(v));
    draw_text(svg, kLeft - 8, frame.y(v) + 4, "end", label.str());
  }
  const double middle = (kLeft + kWidth - kRight) / 2;
  draw_text(svg, middle, 22, "middle", title);
  draw_text(svg, middle, kHeight - 16, "middle", "bytes");
  draw_text(svg, kLeft - 8, kTop - 12, "middle", "busbw (GB/s)");
}

void draw_lines(std::ostream& svg, const Frame& frame, const Lines& lines) {
  std::size_t number = 0;
  for (const auto& [name, points] : lines) {
    const char* colour = kColours[number % std::size(kColours)];
    svg << "<polyline fill='none' stroke-width='2' stroke='" << colour << "' points='";
    for (const Point& p : points) svg << frame.x(p.log2_bytes) << ',' << frame.y(p.log10_gbs) << ' ';
    svg << "'/>\n";
    for (const Point& p : points) {
      svg << "<circle r='3' fill='" << colour << "' cx='" << frame.x(p.log2_bytes) << "' cy='" << frame.y(p.log10_gbs)
          << "'/>\n";
    }
    const double y = kTop + 10 + 16 * static_cast<double>(number);
    svg << "<circle r='4' fill='" << colour << "' cx='" << kWidth - kRight + 14 << "' cy='" << y - 4 << "'/>\n";
    draw_text(svg, kWidth - kRight + 24, y, "start", name);
    ++number;
  }
}

}  // namespace

Status write_plot(OutputFile& file, const std::vector<Row>& rows) {
  Lines lines;
  for (const Row& row : rows) {
    add_point(lines, row, row.out_of_place, "");
    if (row.in_place) add_point(lines, row, *row.in_place, " in place");
  }
  if (lines.empty()) return Status::invalid_usage("nothing to draw: no size has any bytes");
  for (auto& [name, points] : lines) {
    std::stable_sort(points.begin(), points.end(),
                     [](const Point& a, const Point& b) { return a.log2_bytes < b.log2_bytes; });
  }
  const Frame frame(lines);
  const Problem& problem = rows.front().problem;
  std::ostringstream svg;
  svg << "<svg xmlns='http://www.w3.org/2000/svg' width='" << kWidth << "' height='" << kHeight
      << "' font-family='sans-serif' font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n";
  draw_axes(svg, frame, std::string(name_of(problem.collective)) + ", " + std::to_string(problem.ranks) + " ranks");
  draw_lines(svg, frame, lines);
  svg << "</svg>\n";
  return file.write(svg.str());
}

}  // namespace tutti::internal::perf
