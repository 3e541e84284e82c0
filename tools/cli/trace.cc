#include "trace.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace tutti::internal::tools {
namespace {

using nlohmann::json;
using schedule::Step;
using schedule::StepKind;

std::string title_of(const Step& step) {
  switch (step.kind) {
    case StepKind::kSend: return fmt::format("send to {}", step.peer);
    case StepKind::kRecv: return fmt::format("receive from {}", step.peer);
    case StepKind::kRecvReduce: return fmt::format("receive from {} and reduce", step.peer);
    case StepKind::kCopy: return "copy";
    case StepKind::kReduce: return "reduce";
  }
  return {};
}

struct Close {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};

// Lanes of a rank are rows of their own: what is sent and what is received overlap.
constexpr int kRowsOfRank = 3;
int row_of(const Step& step) {
  return is_local(step.kind) ? 2 : is_recv(step.kind) ? 1 : 0;
}
constexpr const char* kRows[kRowsOfRank] = {"sends", "receives", "local"};

json named(const char* what, int process, int thread, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

Status write_timeline(const std::string& path, const algorithms::AlgorithmEntry& entry, const topology::Graph& graph,
                      const algorithms::Hosts& hosts, int root, const schedule::Timing& timing) {
  std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "we"));
  if (file == nullptr) return Status::system("--trace: " + path, errno);
  algorithms::World world{static_cast<int>(graph.ranks.size()), hosts};
  if (hosts.size() == 1) world.hosts = {};
  std::vector<json> events;
  bool is_first = true;
  const auto write_events = [&] {
    for (const json& event : events) {
      std::fprintf(file.get(), "%s%s", is_first ? "" : ",\n",
                   event.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
      is_first = false;
    }
    events.clear();
  };
  std::fputs("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n", file.get());
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const int process = static_cast<int>(h);
    const std::int32_t place = graph.host_of(graph.ranks[static_cast<std::size_t>(hosts[h].front())]);
    events.push_back(named("process_name", process, 0, graph.path(place)));
    for (const int rank : hosts[h]) {
      const auto schedule = make_schedule(entry, world, rank, root);
      if (!schedule.is_ok()) return schedule.status();
      for (int row = 0; row < kRowsOfRank; ++row) {
        events.push_back(
            named("thread_name", process, rank * kRowsOfRank + row, fmt::format("rank {} {}", rank, kRows[row])));
      }
      const auto& times = timing.steps[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < times.size(); ++i) {
        const Step& step = schedule.value().steps[i];
        events.push_back({{"ph", "X"},
                          {"name", title_of(step)},
                          {"pid", process},
                          {"tid", rank * kRowsOfRank + row_of(step)},
                          {"ts", times[i].begin_us},
                          {"dur", times[i].end_us - times[i].begin_us},
                          {"args", {{"step", i}, {"chunks", step.chunks}}}});
      }
      write_events();
    }
  }
  std::fputs("\n]}\n", file.get());
  const bool failed = std::ferror(file.get()) != 0;
  if (std::fclose(file.release()) != 0 || failed) return Status::system("writing " + path, errno);
  return {};
}

}  // namespace tutti::internal::tools
