// Schedules over time.
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "picture.h"
#include "schedule/simulate.h"

namespace tutti::internal::tools {
namespace {

using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;

constexpr double kColumn = 140;
constexpr double kUnit = 26;  // of a message's time
constexpr double kLeft = 60;
constexpr double kTop = 84;
constexpr double kLabelAt = 28;    // from its sender, across, to the number of an arrow to the next rank
constexpr double kLabelStep = 20;  // further for each rank in between: arrows of one sender have their numbers apart
constexpr std::size_t kLabelRanks = 2;
constexpr std::size_t kMostSteps = 20'000;

// Every message takes one unit, whatever it carries; what is local a third of that.
class Units : public schedule::Interconnect {
 public:
  explicit Units(std::size_t ranks) : ranks_(ranks) {}
  [[nodiscard]] std::size_t resources() const override { return 0; }
  [[nodiscard]] double us_per_byte(std::uint32_t /*resource*/) const override { return 0; }
  void find_route(int /*from*/, int /*to*/, double /*call_bytes*/, schedule::Route& route) const override {
    route = {};
    route.latency_us = 0.7;
    route.message_us = 0.15;
    route.buffer_bytes = 1e18;
  }
  [[nodiscard]] std::size_t processors() const override { return ranks_; }
  [[nodiscard]] schedule::Processors processors_of(int rank) const override {
    return {static_cast<std::uint32_t>(rank), 1, 0};
  }
  [[nodiscard]] double slowness(int /*rank*/) const override { return 1; }
  [[nodiscard]] double combine_us_per_byte(int /*rank*/, double /*call_bytes*/) const override { return 0.3; }
  [[nodiscard]] double copy_us_per_byte(int /*rank*/, double /*call_bytes*/) const override { return 0.3; }

 private:
  std::size_t ranks_;
};

std::string chunks_of(std::uint32_t first, std::uint16_t count) {
  return count == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, first + count - 1);
}

class Drawing {
 public:
  Drawing(const std::vector<Schedule>& schedules, const schedule::Timing& timing)
      : schedules_(schedules), timing_(timing) {}

  std::string run(const std::string& title) {
    const double width = 2 * kLeft + kColumn * static_cast<double>(schedules_.size() - 1);
    const double height = kTop + kUnit * (timing_.total_us + 2);
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "font-family=\"sans-serif\" font-size=\"10\">\n<defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"9\" "
        "refY=\"5\" "
        "markerWidth=\"7\" markerHeight=\"7\" markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0L10 5L0 "
        "10z\"/>"
        "</marker></defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"12\" y=\"24\" "
        "font-size=\"15\" "
        "font-weight=\"bold\">{2}</text>\n<text x=\"12\" y=\"40\" fill=\"#566573\">Time goes down; each message takes "
        "one unit.{3}</text>\n<text x=\"12\" y=\"53\" fill=\"#566573\">Blue: sent unchanged; red: combined by the "
        "receiver; green: local.</text>\n",
        std::max(width, 520.0), height, title, numbered() ? " Numbers are chunks." : "");
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
      text_ += fmt::format(
          "<text x=\"{0:.1f}\" y=\"{1}\" text-anchor=\"middle\" font-weight=\"bold\">rank {2}</text>\n<line "
          "x1=\"{0:.1f}\" "
          "y1=\"{3}\" x2=\"{0:.1f}\" y2=\"{4:.1f}\" stroke=\"#aab7b8\"/>\n",
          x_of(rank), kTop - 12, rank, kTop - 6, height - kUnit / 2);
    }
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank) add_rank(rank);
    return text_ + labels_ + "</svg>\n";
  }

 private:
  // Whether there are chunks to tell apart.
  [[nodiscard]] bool numbered() const { return schedules_.front().shape.chunks > 1; }
  static double x_of(std::size_t rank) { return kLeft + kColumn * static_cast<double>(rank); }
  static double y_of(double us) { return kTop + kUnit * us; }

  void add_rank(std::size_t rank) {
    const Schedule& one = schedules_[rank];
    for (std::size_t i = 0; i < one.steps.size(); ++i) {
      const Step& s = one.steps[i];
      const schedule::StepTime& time = timing_.steps[rank][i];
      if (schedule::is_local(s.kind)) {
        text_ += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"8\" height=\"{:.1f}\" fill=\"#1e8449\"/>\n<text x=\"{:.1f}\" "
            "y=\"{:.1f}\" "
            "fill=\"#1e8449\">{} {}</text>\n",
            x_of(rank) - 4, y_of(time.begin_us), std::max(3.0, kUnit * (time.end_us - time.begin_us)), x_of(rank) + 7,
            y_of(time.begin_us) + 8, s.kind == StepKind::kCopy ? "copy" : "reduce",
            chunks_of(s.target_chunk, s.chunks));
      } else if (schedule::is_recv(s.kind)) {
        add_message(static_cast<std::size_t>(s.peer), rank, s, time);
      }
    }
  }

  // Drawn from where it ends: it began a unit before.
  void add_message(std::size_t from, std::size_t to, const Step& s, const schedule::StepTime& time) {
    const char* const colour = s.kind == StepKind::kRecvReduce ? "#c0392b" : "#1f618d";
    const double x1 = x_of(from), x2 = x_of(to);
    const double y1 = y_of(time.begin_us - 0.85), y2 = y_of(time.end_us);
    text_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"1.4\" "
        "marker-end=\"url(#tip)\"/>\n",
        x1, y1, x2, y2, colour);
    if (!numbered()) return;
    const std::size_t between = std::min((from > to ? from - to : to - from) - 1, kLabelRanks);
    const double share = (kLabelAt + kLabelStep * static_cast<double>(between)) / std::abs(x2 - x1);
    const std::string label = chunks_of(s.target_chunk, s.chunks);
    // Above the arrows, the edge first: not every program knows paint-order.
    for (const char* const edge : {" stroke=\"#ffffff\" stroke-width=\"3\"", ""}) {
      labels_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\"{} fill=\"{}\">{}</text>\n",
                             x1 + (x2 - x1) * share, y1 + (y2 - y1) * share + 3.5, edge, colour, label);
    }
  }

  const std::vector<Schedule>& schedules_;
  const schedule::Timing& timing_;
  std::string text_;
  std::string labels_;  // of arrows, above them
};

}  // namespace

Result<std::string> draw_schedules(const std::vector<Schedule>& schedules, const std::string& title) {
  std::size_t steps = 0;
  for (const Schedule& one : schedules) steps += one.steps.size();
  if (steps > kMostSteps)
    return Status::invalid_argument(fmt::format("{} steps are more than can be drawn ({})", steps, kMostSteps));
  const schedule::Shape& shape = schedules.front().shape;
  const schedule::Layout layout(shape, shape.chunks_per_block(), 1);
  schedule::SimulationOptions options;
  options.keeps_steps = true;
  const auto timing = schedule::simulate(schedules, layout, Units(schedules.size()), options);
  if (!timing.is_ok()) return timing.status();
  return Drawing(schedules, timing.value()).run(title);
}

Status write_text(const std::string& path, const std::string& text) {
  if (path == "-") return std::printf("%s", text.c_str()) < 0 ? Status::system("standard output", errno) : Status();
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? Status() : Status::system(path, errno);
}

}  // namespace tutti::internal::tools
